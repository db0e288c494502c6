"""Moments as people write them: `500`, `head`, `-100`, `10m ago`, `2026-01-31T12:00`. Pure: text
and the current time in, a value out.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import msgspec

from services.replay.filters import FilterError

_AGO = re.compile(
    r"^(\d+(?:\.\d+)?)\s*(s|sec|seconds?|m|min|minutes?|h|hours?|d|days?)(?:\s+ago)?$"
)
_UNIT_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_POSITION, _UNIX_S = re.compile(r"[0-9]{1,9}"), re.compile(r"[0-9]{10,}(\.[0-9]+)?")
LONGEST = 60
# The times of the years 1 to 9999, less the hours that a time zone may add, in Unix microseconds.
_YEARS_US = (-62_135_683_200_000_000, 253_402_387_199_999_999)
REMEDY = (
    "give a position (500), head, -100 (a hundred before it), 10m or 10m ago, or a "
    "time (2026-01-31T12:00:00)"
)


class At(msgspec.Struct, frozen=True):
    """A position."""

    position: int


class Back(msgspec.Struct, frozen=True):
    """A number of positions before the head."""

    events: int = 0


class When(msgspec.Struct, frozen=True):
    """A time, Unix microseconds."""

    time_us: int


Moment = At | Back | When


def parse(text: str, now_us: int, what: str = "") -> Moment:
    """Return the value of the text. A bare number is a position, or Unix seconds from ten digits
    on.

    A time without zone is UTC. Raises FilterError, also for a moment that no log can reach.
    """
    moment = _parsed(text.strip(), now_us) if len(text) <= LONGEST else None
    if moment is None or not _thinkable(moment):
        shown = text if len(text) <= LONGEST else text[:LONGEST] + "..."
        raise FilterError(f"{what + ' ' if what else ''}{shown!r} is no moment; {REMEDY}")
    return moment


def _parsed(text: str, now_us: int) -> Moment | None:
    wanted = text.lower()
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
    return _time(text)


def _time(text: str) -> When | None:
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        return None
    since = (when if when.tzinfo else when.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
    return When(since // timedelta(microseconds=1))


def _thinkable(moment: Moment) -> bool:
    """Return whether a log can reach the moment: positions have 63 bits, and years four digits."""
    if isinstance(moment, When):
        return _YEARS_US[0] <= moment.time_us <= _YEARS_US[1]
    return (moment.position if isinstance(moment, At) else moment.events) < 1 << 63
