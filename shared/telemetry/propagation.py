"""Trace context as text (W3C traceparent) in bus headers and in the `trace` of events, and spans.

Without a tracer provider, and under a parent that is not sampled, a span costs little and passes
its parent on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext

from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, Span, SpanContext, TraceFlags

_TRACEPARENT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
HEADER = "traceparent"
# The `trace` of events whose trace is not recorded, as most are: 1 byte instead of 55.
UNRECORDED = "-"
_UNRECORDED = SpanContext(1, 1, is_remote=True, trace_flags=TraceFlags(0))
# Uses the process's provider once it is set. To ask the provider for a tracer at each span costs
# more than the span.
_tracer = trace.ProxyTracer("topolog")


def parse(traceparent: str) -> SpanContext | None:
    """Return the context of a traceparent, or None if the text is malformed."""
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
    """Return the traceparent of a context, empty if the context is not valid."""
    if not context.is_valid:
        return ""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def exemplar(traceparent: str) -> dict[str, str] | None:
    """Return what leads from a value to its trace, None if the trace is not recorded."""
    context = parse(traceparent)
    if context is None or not context.trace_flags.sampled:
        return None
    return {"trace_id": f"{context.trace_id:032x}", "span_id": f"{context.span_id:016x}"}


def current() -> str:
    """Return the traceparent of the current span for `Commit.trace`, empty without one."""
    return text_of(trace.get_current_span().get_span_context())


@contextmanager
def span(name: str, parent: str = "", **attributes: str | int) -> Iterator[Span]:
    """Run the block in a span declared in `names`, under `parent` (a traceparent) or the current
    span. Under a parent that is not sampled no span is made: the parent is passed on, for a
    fraction of the cost."""
    parent_context = _context(parent)
    context = parent_context or trace.get_current_span().get_span_context()
    if context.is_valid and not context.trace_flags.sampled:
        with trace.use_span(NonRecordingSpan(context)) as passed_on:
            yield passed_on
        return
    outer = trace.set_span_in_context(NonRecordingSpan(parent_context)) if parent_context else None
    with _tracer.start_as_current_span(name, context=outer, attributes=attributes) as started:
        yield started


def step(name: str, **attributes: str | int) -> AbstractContextManager[object]:
    """Open a span under the current one. Without a current span nothing is opened, so that
    background work begins no traces."""
    return (
        span(name, "", **attributes)
        if trace.get_current_span().get_span_context().is_valid
        else nullcontext()
    )


def headers() -> dict[str, str]:
    traceparent = current()
    return {HEADER: traceparent} if traceparent else {}


def from_headers(given: Mapping[str, str]) -> str:
    """Return the traceparent of a message, empty if it is absent or malformed."""
    text = given.get(HEADER, "")
    return text if parse(text) else ""


def trace_of(name: str, parent: str, **attributes: str | int) -> str:
    """Return the traceparent of a short span under `parent`, for an event; UNRECORDED if the trace
    is not sampled. Under a parent that is not sampled no span is made, because it costs more."""
    context = _context(parent)
    if context is None or context.trace_flags.sampled:
        with span(name, parent, **attributes):
            context = trace.get_current_span().get_span_context()
        if not context.is_valid or context.trace_flags.sampled:
            return text_of(context) or parent
    return UNRECORDED


def _context(parent: str) -> SpanContext | None:
    """Return the context of an event's trace, None for none."""
    if parent == UNRECORDED:
        return _UNRECORDED
    return parse(parent) if parent else None
