"""The window that a verb looks at: the same options for every verb that takes one. Text in,
positions out, notes to stderr.
"""

from __future__ import annotations

import sys
import time
from typing import Annotated

import typer

from services.cli.output import EXIT_USAGE, CommandError
from services.replay import moments, positions
from services.replay.filters import FilterError
from services.replay.positions import FROM, TO, Window
from shared.eventlog.port import EventLog

BEGIN_HELP = "Where to begin: a position, 10m (ago), a time, head, -100; the beginning without it. Of several the latest."
END_HELP = "Where to end, as for --from; the head without it. Of several the earliest."
From = Annotated[
    list[str] | None, typer.Option(FROM, "--since", metavar="<moment>", help=BEGIN_HELP)
]
To = Annotated[list[str] | None, typer.Option(TO, "--until", metavar="<moment>", help=END_HELP)]


def check(from_: list[str] | None, to: list[str] | None, verb: str) -> None:
    """Before a log is opened: what cannot be meant. Raises CommandError."""
    now_us = time.time_ns() // 1000
    for what, text in (*((FROM, text) for text in from_ or ()), *((TO, text) for text in to or ())):
        try:
            moments.parse(text, now_us, what)
        except FilterError as error:
            raise CommandError(str(error), f"topolog {verb} --help", EXIT_USAGE) from error


async def window(log: EventLog, from_: list[str] | None, to: list[str] | None) -> Window:
    """The positions. A beginning before the log is its first fact, which is said."""
    found = await positions.window(log, from_ or (), to or ())
    if found.clamped:
        note(found.clamped)
    return found


async def with_events(
    log: EventLog, from_: list[str] | None, to: list[str] | None
) -> tuple[int, int]:
    """The positions of a window that must hold a fact. Raises FilterError where none lies in it."""
    found = await window(log, from_, to)
    if found.empty:
        raise FilterError(
            found.empty,
            f"an earlier {FROM}; the last facts are told by: topolog replay log {FROM} -10",
        )
    return found.first, found.last


def note(text: str) -> None:
    """A line for people beside the output."""
    print(f"note: {text}", file=sys.stderr)
