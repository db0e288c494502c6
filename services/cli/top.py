"""`topolog top`: the live picture of a log. `services.top` draws it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from services.cli.addresses import data_dir_option, database_option
from services.cli.log_source import LogSource
from services.cli.output import EXIT_USAGE, CommandError, is_screen, json_line


def register(app: typer.Typer) -> None:
    app.command("top")(top)


def top(
    database_url: Annotated[str, database_option()] = "",
    data_dir: Annotated[Path | None, data_dir_option()] = None,
    once: Annotated[bool, typer.Option("--once", help="Print the picture once and exit.")] = False,
    width: Annotated[
        int, typer.Option(help="Columns of --once. Default: the terminal's.", min=0, max=500)
    ] = 0,
    height: Annotated[int, typer.Option(help="Lines of --once.", min=5, max=10_000)] = 40,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print nodes, pods and rates once as a JSON line.")
    ] = False,
) -> None:
    """Show nodes, zones, pods and the newest events live.

    Press ? for the keys. q closes the view; the cluster keeps running.
    """
    from services.top.once import picture_once, snapshot
    from services.top.screen import Screen

    if not once and not as_json and not is_screen():
        raise CommandError(
            "standard output is not a terminal that can draw the picture",
            "topolog top --once, or topolog top --json",
            EXIT_USAGE,
        )

    async def session() -> None:
        async with LogSource(database_url, data_dir) as log:
            if as_json:
                json_line(await snapshot(log))
            elif once:
                await picture_once(log, width, height)
            else:
                await Screen().show(log)

    asyncio.run(session())
