"""`topolog top`: the live picture of a log. What is drawn lives in `services.top`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from services.cli.addresses import data_dir_option, database_option
from services.cli.log_source import LogSource
from services.cli.output import EXIT_USAGE, CommandError, is_screen


def register(app: typer.Typer) -> None:
    """Mount the verb."""
    app.command("top")(top)


def top(
    database_url: Annotated[str, database_option()] = "",
    data_dir: Annotated[Path | None, data_dir_option()] = None,
    once: Annotated[
        bool, typer.Option("--once", help="Print the picture once, as it stands, and end.")
    ] = False,
    width: Annotated[
        int, typer.Option(help="Columns of --once; 0 is the terminal's.", min=0, max=500)
    ] = 0,
    height: Annotated[int, typer.Option(help="Lines of --once.", min=5, max=10_000)] = 40,
) -> None:
    """Show nodes, zones, the queue and the last facts, live. Keys: ? tells them, q ends."""
    from services.top.once import picture_once
    from services.top.screen import Screen

    if not once and not is_screen():
        raise CommandError(
            "standard output is no terminal that can be drawn on", "topolog top --once", EXIT_USAGE
        )

    async def session() -> None:
        async with LogSource(database_url, data_dir) as log:
            if once:
                await picture_once(log, width, height)
            else:
                await Screen().show(log)

    asyncio.run(session())
