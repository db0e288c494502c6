"""The picture once, for a pipe or a screenshot: the log is folded to its end and drawn."""

from __future__ import annotations

import sys

from rich.console import Console

from services.top.draw import draw
from services.top.follow import Follower
from services.top.screen import Screen
from shared.eventlog.port import EventLog

PIPE_COLUMNS = 120


async def picture_once(log: EventLog, width: int, height: int) -> None:
    """Print the picture of the log as it stands."""
    follower = Follower(log)
    async for _ in follower.follow():
        if follower.ledger.position >= follower.head:
            break
    columns = width or (Console().width if sys.stdout.isatty() else PIPE_COLUMNS)
    console = Console(
        highlight=False, width=columns, no_color=None if sys.stdout.isatty() else True
    )
    for line in draw(Screen(console).scene(follower), columns, height):
        console.print(line)
