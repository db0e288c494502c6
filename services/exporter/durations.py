"""Durations as Go writes them (`60s`, `1m30s`, `500ms`). Pure."""

from __future__ import annotations

import re

_DURATION = re.compile(r"(?:([0-9]{1,4})h)?(?:([0-9]{1,6})m)?(?:([0-9]{1,8}(?:\.[0-9]{1,9})?)s)?(?:([0-9]{1,9})ms)?")


def nanoseconds(text: str) -> int | None:
    """The duration; None for a text that is none."""
    found = _DURATION.fullmatch(text)
    if not text or found is None:
        return None
    hours, minutes, seconds, milliseconds = (float(part or 0) for part in found.groups())
    return round((hours * 3600 + minutes * 60 + seconds + milliseconds / 1000) * 1e9)


def duration_s(text: str) -> str:
    """Seconds as text. Raises ValueError for what is no duration, and for none at all."""
    found = nanoseconds(text)
    if not found:
        off = ": a node that is silent is taken to be gone" if found == 0 or text == "0" else ""
        raise ValueError(f"{text!r} is no interval{off}; write a duration such as 60s")
    return f"{found / 1e9:g}"
