"""Intervals of the exporter as durations in Go's format. Pure."""

from __future__ import annotations

from shared.domain.durations import nanoseconds


def duration_s(text: str) -> str:
    """Return the duration in seconds, as text. Raises ValueError if it is not positive."""
    duration_ns = nanoseconds(text)
    if not duration_ns:
        zero = ": a node without reports expires" if duration_ns == 0 else ""
        raise ValueError(f"{text!r} is not an interval{zero}; write a duration such as 60s")
    return f"{duration_ns / 1e9:g}"
