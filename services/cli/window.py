"""The options --from and --to, the same for every verb that reads a window of the log."""

from __future__ import annotations

import sys
import time
from typing import Annotated

import typer

from services.cli.output import EXIT_USAGE, CommandError, say
from services.replay import moments, positions
from services.replay.filters import FilterError
from services.replay.positions import FROM, TO, Window
from shared.eventlog.port import EventLog

FROM_HELP = (
    "Begin of the window: a position, 10m (ago), a time, head, or -100. "
    "Default: the start of the log. If given twice, the later one counts."
)
TO_HELP = (
    "End of the window, as for --from. Default: the head. If given twice, the earlier one counts."
)
From = Annotated[
    list[str] | None, typer.Option(FROM, "--since", metavar="<moment>", help=FROM_HELP)
]
To = Annotated[list[str] | None, typer.Option(TO, "--until", metavar="<moment>", help=TO_HELP)]


def check(from_: list[str] | None, to: list[str] | None, verb: str) -> None:
    """Raise CommandError for text that is no moment, before a log is opened."""
    now_us = time.time_ns() // 1000
    texts = [*((FROM, text) for text in from_ or ()), *((TO, text) for text in to or ())]
    for flag, text in texts:
        try:
            moments.parse(text, now_us, flag)
        except FilterError as error:
            raise CommandError(str(error), f"topolog {verb} --help", EXIT_USAGE) from error


async def window(log: EventLog, from_: list[str] | None, to: list[str] | None) -> Window:
    """Return the positions. A begin before the log becomes its first event, with a note."""
    result = await positions.window(log, from_ or (), to or ())
    if result.clamped:
        note(result.clamped)
    return result


async def with_events(
    log: EventLog, from_: list[str] | None, to: list[str] | None
) -> tuple[int, int]:
    """Return the positions of a window. Raises FilterError if no event is in it."""
    result = await window(log, from_, to)
    if result.empty:
        raise FilterError(
            result.empty,
            f"an earlier {FROM}; to see the last events: topolog replay log {FROM} -10",
        )
    return result.first, result.last


def note(text: str) -> None:
    """Print a note to stderr."""
    say(f"note: {text}", to=sys.stderr)
