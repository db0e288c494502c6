"""Converts moments to positions. The state of a moment is the one after the last event at or before
it. A window begins with the first event at or after one moment and ends with the last event at or
before another.

The log is read if a time must become a position, by bisection over the writers' clocks. This module
does not know how a verb handles an empty window.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec

from services.replay import moments, reading
from services.replay.filters import FilterError, clock
from shared.eventlog.port import EventLog
from shared.events.envelope import Envelope

FROM, TO = "--from", "--to"


class Window(msgspec.Struct, frozen=True):
    """Positions `first` to `last`.

    `clamped` means that the log begins later than the requested start. `empty` says why the window
    has no event; its `first` is then behind its `last`.
    """

    first: int
    last: int
    clamped: str = ""
    empty: str = ""


async def position_of(
    log: EventLog, text: str, what: str = "", remedy: str = "topolog replay at head"
) -> int:
    """Return the position for the state of a moment. Raises FilterError, with this remedy, for a
    moment outside the log.
    """
    moment = moments.parse(text, _now_us(), what)
    first, head = await _ends(log)
    if isinstance(moment, moments.When):
        if moment.time_us < first.time_us:
            raise _too_early(text, first, what, remedy)
        return await reading.position_at(log, moment.time_us)
    return _inside(moment, first.position, head, remedy)


async def window(log: EventLog, begins: Sequence[str] = (), ends: Sequence[str] = ()) -> Window:
    """Return the window from the latest start (position 1 without one) to the earliest end (or the
    head).

    Raises FilterError for a position outside the log, an end before it, and a start behind the end.
    """
    starts = [await _beginning(log, text) for text in begins]
    first = max((position for position, _ in starts), default=1)
    last = min([await _end(log, text) for text in ends], default=await log.head())
    clamped = "; ".join(said for position, said in starts if said and position == first)
    if first <= last:
        return Window(first, last, clamped)
    if not begins:
        return Window(first, last, empty="the log is empty")
    begin = " and ".join(f"{FROM} {text}" for text in begins)
    if not ends:
        newest = clock((await log.read(last - 1, 1))[0].time_us)
        return Window(
            first, last, empty=f"no event is as late as {begin}: the last one is of {newest}"
        )
    end = " and ".join(f"{TO} {text}" for text in ends)
    if first > last + 1 or not any(
        isinstance(moments.parse(text, 0), moments.When) for text in (*begins, *ends)
    ):
        raise FilterError(
            f"{begin} lies behind {end}",
            f"{FROM} the earlier, {TO} the later one; see: topolog replay log",
        )
    return Window(first, last, empty=f"no event lies between {begin} and {end}")


async def _beginning(log: EventLog, text: str) -> tuple[int, str]:
    """Return the first position, and the note on it."""
    moment = moments.parse(text, _now_us(), FROM)
    first, head = await _ends(log)
    if not isinstance(moment, moments.When):
        return _inside(moment, first.position, head, f"{FROM} {first.position}"), ""
    if moment.time_us < first.time_us:
        return (
            first.position,
            (
                f"{FROM} {text} lies before the log begins: from its first event on, at "
                f"{clock(first.time_us)}"
            ),
        )
    return max(first.position, await reading.position_at(log, moment.time_us - 1) + 1), ""


async def _end(log: EventLog, text: str) -> int:
    return await position_of(log, text, TO, f"{TO} head")


async def _ends(log: EventLog) -> tuple[Envelope, int]:
    """Return the first event, and the last position."""
    head = await log.head()
    if head == 0:
        raise FilterError("the log is empty", "topolog up")
    return (await log.read(0, 1))[0], head


def _inside(moment: moments.At | moments.Back, first: int, head: int, remedy: str) -> int:
    if isinstance(moment, moments.Back):
        return max(first, head - moment.events)
    if not first <= moment.position <= head:
        raise FilterError(
            f"position {moment.position} is outside the log, which goes from {first} to {head}",
            remedy,
        )
    return moment.position


def _too_early(text: str, first: Envelope, what: str, remedy: str) -> FilterError:
    said = f"{what} {text!r}" if what else repr(text)
    return FilterError(f"{said} lies before the log begins, at {clock(first.time_us)}", remedy)


def _now_us() -> int:
    return time.time_ns() // 1000
