"""Moments as people write them: `500`, `head`, `-100`, `10m ago`, `2026-01-31T12:00`. Pure: text and now in, a value out."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import msgspec

from services.replay.filters import FilterError

_AGO = re.compile(r"^(\d+(?:\.\d+)?)\s*(s|sec|seconds?|m|min|minutes?|h|hours?|d|days?)(?:\s+ago)?$")
_UNIT_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_POSITION, _UNIX_S = re.compile(r"[0-9]{1,9}"), re.compile(r"[0-9]{10,}(\.[0-9]+)?")
REMEDY = "give a position (500), head, -100 (a hundred before it), 10m or 10m ago, or a time (2026-01-31T12:00:00)"


class At(msgspec.Struct, frozen=True):
    """A position."""

    position: int


class Back(msgspec.Struct, frozen=True):
    """So many positions before the head."""

    facts: int = 0


class When(msgspec.Struct, frozen=True):
    """A time, Unix microseconds."""

    time_us: int


Moment = At | Back | When


def parse(text: str, now_us: int, what: str = "") -> Moment:
    """What the text means. A bare number is a position, or Unix seconds from ten digits on; a time without zone is UTC. Raises
    FilterError."""
    wanted = text.strip().lower()
    if wanted in ("now", "head", "end"):
        return Back()
    if re.fullmatch(r"-\d+|head-\d+", wanted):
        return Back(int(wanted.rpartition("-")[2]))
    if _POSITION.fullmatch(wanted):
        return At(int(wanted))
    if _UNIX_S.fullmatch(wanted):
        return When(int(float(wanted) * 1_000_000))
    if ago := _AGO.match(wanted):
        return When(now_us - int(float(ago[1]) * _UNIT_S[ago[2][0]] * 1_000_000))
    return When(_time(text, what))


def _time(text: str, what: str) -> int:
    try:
        when = datetime.fromisoformat(text.strip())
    except ValueError:
        raise FilterError(f"{what + ' ' if what else ''}{text!r} is no moment; {REMEDY}") from None
    return int((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() * 1_000_000)
