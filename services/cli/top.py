"""`topolog top`: the live picture of a log. `services.top` draws it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from services.cli.addresses import data_dir_option, database_option, http_token
from services.cli.log_source import LogSource
from services.cli.output import EXIT_USAGE, CommandError, is_screen, json_line


def register(app: typer.Typer) -> None:
    app.command("top")(top)


def top(
    database_url: Annotated[str, database_option()] = "",
    data_dir: Annotated[Path | None, data_dir_option()] = None,
    console: Annotated[
        str,
        typer.Option(
            "--console",
            metavar="URL",
            help="Ask this console, not the database. Its token is TOPOLOG_HTTP_TOKEN.",
        ),
    ] = "",
    once: Annotated[bool, typer.Option("--once", help="Print the picture once and exit.")] = False,
    width: Annotated[
        int, typer.Option(help="Columns of --once. Default: the terminal's.", min=0, max=500)
    ] = 0,
    height: Annotated[int, typer.Option(help="Lines of --once.", min=5, max=10_000)] = 40,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print nodes, pods and rates once as a JSON line.")
    ] = False,
) -> None:
    """Show nodes, zones, pods and the newest events live, of all cells if there are several.

    Press ? for the keys. q closes the view; the cluster keeps running.
    """
    from services.top.once import picture_once, snapshot
    from services.top.screen import Screen, source_of

    if not once and not as_json and not is_screen():
        raise CommandError(
            "standard output is not a terminal that can draw the picture",
            "topolog top --once, or topolog top --json",
            EXIT_USAGE,
        )

    async def session() -> None:
        if console:
            await _remote(console, once, as_json, width, height)
            return
        async with LogSource(database_url, data_dir).logs() as logs:
            source = source_of(logs)
            if not once and not as_json:
                await Screen().show(source)
                return
            await source.at_head()
            if as_json:
                json_line(snapshot(source))
            else:
                picture_once(source, width, height)

    asyncio.run(session())


async def _remote(address: str, once: bool, as_json: bool, width: int, height: int) -> None:
    """Show what a console answers."""
    from services.top.once import picture_once
    from services.top.remote import API, ConsoleError, RemotePicture
    from services.top.screen import Screen

    if as_json:
        raise CommandError("--json reads the log", f"curl CONSOLE{API}/top", EXIT_USAGE)
    try:
        remote = RemotePicture(address, http_token())
        if once:
            await remote.ask()
            picture_once(remote, width, height)
        else:
            await Screen().show(remote)
    except ConsoleError as error:
        raise CommandError(str(error), "topolog console, or its address and token") from error
