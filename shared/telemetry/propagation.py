"""Trace context as text (W3C traceparent), in the headers of the bus and in the `trace` of facts, and spans around work.

Without a tracer provider a span costs about a microsecond and hands on the context that it was given.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, Span, SpanContext, TraceFlags

_TRACEPARENT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
HEADER = "traceparent"


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
    """Run the block in a span declared in `names`, under `parent` (a traceparent) or under the span that runs now."""
    context = _context(parent) if parent else None
    with trace.get_tracer("topolog").start_as_current_span(name, context=context, attributes=attributes) as started:
        yield started


def _context(traceparent: str) -> Context | None:
    parent = parse(traceparent)
    return None if parent is None else trace.set_span_in_context(NonRecordingSpan(parent))


def headers() -> dict[str, str]:
    """Headers that carry the current trace, empty when there is none."""
    traceparent = current()
    return {HEADER: traceparent} if traceparent else {}


def from_headers(given: Mapping[str, str]) -> str:
    """The traceparent of a message, empty when absent or malformed."""
    text = given.get(HEADER, "")
    return text if parse(text) else ""
