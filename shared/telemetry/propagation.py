"""Trace context as text (W3C traceparent), in the headers of the bus and in the `trace` of facts, and spans around work.

Nearly every trace is not recorded: it has an id, which is handed on, and no spans. Whether a new one is recorded is decided here
and not by OpenTelemetry, whose sampler is asked with a span in its hand (opentelemetry-sdk 1.45, measured: 13 us for 2).
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext

from opentelemetry import trace
from opentelemetry.trace import INVALID_SPAN_CONTEXT, NonRecordingSpan, Span, SpanContext, TraceFlags

_TRACEPARENT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
HEADER = "traceparent"
_tracer = trace.ProxyTracer("topolog")
"""Finds the process's provider when it is set; asking the provider for a tracer at each span costs more than the span."""


class _NewTraces:
    """Which share of the traces that begin here is recorded; None: they do not even have an id."""

    share: float | None = None


def begin_traces(share: float) -> None:
    """From now on what has no parent begins a trace, and this share of them is recorded."""
    _NewTraces.share = share


def parse(traceparent: str) -> SpanContext | None:
    """The context that the text names; None for anything malformed, which then simply has no parent."""
    match = _TRACEPARENT.fullmatch(traceparent)
    if match is None:
        return None
    context = SpanContext(int(match[1], 16), int(match[2], 16), is_remote=True, trace_flags=TraceFlags(int(match[3], 16) & 1))
    return context if context.is_valid else None


def text_of(context: SpanContext) -> str:
    """The traceparent of a context, empty for none."""
    if not context.is_valid:
        return ""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def current() -> str:
    """The traceparent of the span that runs now, empty for none: what belongs into `Commit.trace`."""
    return text_of(trace.get_current_span().get_span_context())


@contextmanager
def span(name: str, parent: str = "", **attributes: str | int) -> Iterator[Span]:
    """Run the block in a span declared in `names`, under `parent` (a traceparent) or under the span that runs now. In a trace
    that is not recorded no span is made: its context is handed on."""
    unrecorded = _unrecorded(parent)
    if unrecorded is not None:
        with trace.use_span(NonRecordingSpan(unrecorded)) as handed_on:
            yield handed_on
        return
    with _recorded(name, parent, attributes) as started:
        yield started


def _unrecorded(parent: str) -> SpanContext | None:
    """The context of what runs under `parent`, or begins a trace, where it is not recorded; None where it is."""
    context = (parse(parent) if parent else None) or trace.get_current_span().get_span_context()
    if context.is_valid:
        return None if context.trace_flags.sampled else context
    if _NewTraces.share is None:
        return INVALID_SPAN_CONTEXT
    if random.random() < _NewTraces.share:
        return None
    return SpanContext(random.getrandbits(128), random.getrandbits(64), is_remote=False)


def _recorded(name: str, parent: str, attributes: Mapping[str, str | int]) -> AbstractContextManager[Span]:
    above = parse(parent) if parent else None
    under = trace.set_span_in_context(NonRecordingSpan(above)) if above else None
    return _tracer.start_as_current_span(name, context=under, attributes=attributes)


def step(name: str, **attributes: str | int) -> AbstractContextManager[object]:
    """A span under the one that runs now; nothing where none runs, so that background work begins no traces."""
    return span(name, "", **attributes) if trace.get_current_span().get_span_context().is_valid else nullcontext()


def headers() -> dict[str, str]:
    """Headers that carry the current trace, empty when there is none."""
    traceparent = current()
    return {HEADER: traceparent} if traceparent else {}


def from_headers(given: Mapping[str, str]) -> str:
    """The traceparent of a message, empty when absent or malformed."""
    text = given.get(HEADER, "")
    return text if parse(text) else ""


def trace_of(name: str, parent: str, **attributes: str | int) -> str:
    """The traceparent of a short span under `parent`: what a fact carries on. The parent's own where no span is made."""
    unrecorded = _unrecorded(parent)
    if unrecorded is not None:
        return text_of(unrecorded) or parent
    with _recorded(name, parent, attributes):
        return current() or parent
