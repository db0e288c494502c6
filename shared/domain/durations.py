"""Durations in Go's format (`60s`, `1m30s`, `1.5h`, `500ms`). Source: time.ParseDuration."""

from __future__ import annotations

import re

_NS = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "μs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
_PART = r"(?=\.?[0-9])([0-9]{0,19})(?:\.([0-9]{0,19}))?(ns|us|µs|μs|ms|s|m|h)"
_PARTS = re.compile(_PART)
_DURATION = re.compile(rf"\+?(?:{_PART})+")
MAX_NS = 2**63 - 1


def nanoseconds(text: str) -> int | None:
    """Return the duration, or None if the text is not a duration or is negative."""
    if text == "0":
        return 0
    if _DURATION.fullmatch(text) is None:
        return None
    total = 0
    for whole, fraction, unit in _PARTS.findall(text):
        total += int(whole or 0) * _NS[unit] + int(fraction or 0) * _NS[unit] // 10 ** len(fraction)
    return total if total <= MAX_NS else None
