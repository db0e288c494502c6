"""Trace context as text (W3C traceparent), in the headers of the bus and in the `trace` of facts,
and spans around work.

Without a tracer provider, and under a parent that is not sampled, a span costs little and hands on
what it was given.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext

from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, Span, SpanContext, TraceFlags

_TRACEPARENT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
HEADER = "traceparent"
_tracer = trace.ProxyTracer("topolog")
"""Finds the process's provider when it is set; asking the provider for a tracer at each span costs more than the span."""


def parse(traceparent: str) -> SpanContext | None:
    """The context that the text names; None for anything malformed, which then simply has no
    parent.
    """
    match = _TRACEPARENT.fullmatch(traceparent)
    if match is None:
        return None
    context = SpanContext(
        int(match[1], 16),
        int(match[2], 16),
        is_remote=True,
        trace_flags=TraceFlags(int(match[3], 16) & 1),
    )
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
    """Run the block in a span declared in `names`, under `parent` (a traceparent) or under the span
    that runs now.

    Under a parent that is not sampled no span is made: the parent itself is handed on, for a
    fraction of the cost.
    """
    above = parse(parent) if parent else None
    context = above or trace.get_current_span().get_span_context()
    if context.is_valid and not context.trace_flags.sampled:
        with trace.use_span(NonRecordingSpan(context)) as handed_on:
            yield handed_on
        return
    under = trace.set_span_in_context(NonRecordingSpan(above)) if above else None
    with _tracer.start_as_current_span(name, context=under, attributes=attributes) as started:
        yield started


def step(name: str, **attributes: str | int) -> AbstractContextManager[object]:
    """A span under the one that runs now; nothing where none runs, so that background work begins
    no traces.
    """
    return (
        span(name, "", **attributes)
        if trace.get_current_span().get_span_context().is_valid
        else nullcontext()
    )


def headers() -> dict[str, str]:
    """Headers that carry the current trace, empty when there is none."""
    traceparent = current()
    return {HEADER: traceparent} if traceparent else {}


def from_headers(given: Mapping[str, str]) -> str:
    """The traceparent of a message, empty when absent or malformed."""
    text = given.get(HEADER, "")
    return text if parse(text) else ""


def trace_of(name: str, parent: str, **attributes: str | int) -> str:
    """The traceparent of a short span under `parent`: what a fact carries on. The parent's own
    where no spans are made, as under one that is not sampled: most are not, and a span that hands
    on costs more than to look."""
    above = parse(parent) if parent else None
    if above is not None and not above.trace_flags.sampled:
        return text_of(above)
    with span(name, parent, **attributes):
        return current() or parent
