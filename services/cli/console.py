"""`topolog console`: the picture of a log in a browser, on this machine."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Annotated

import typer

from services.cli.addresses import data_dir_option, database_option
from services.cli.log_source import LogSource
from services.cli.output import EXIT_USAGE, CommandError, say

PORT = 8090


def register(app: typer.Typer) -> None:
    app.command("console")(console)


def console(
    database_url: Annotated[str, database_option()] = "",
    data_dir: Annotated[Path | None, data_dir_option()] = None,
    port: Annotated[
        int, typer.Option(help="Port on loopback; 0 for any free port.", min=0, max=65535)
    ] = PORT,
) -> None:
    """Show nodes, pods, their stories and any moment of the log in a browser.

    Reads only. Serves on 127.0.0.1 until interrupted. `topolog up` has a console of its own.
    """
    raise typer.Exit(asyncio.run(_serve(LogSource(database_url, data_dir), port)))


async def _serve(source: LogSource, port: int) -> int:
    from services.console.service import PAGE, Source, serve
    from services.console.settings import ConsoleSettings
    from shared.runtime.app import Service
    from shared.runtime.settings import SettingsInvalid, load
    from shared.telemetry.setup import TelemetrySettings, set_up

    name = "topolog-console"
    try:
        settings = load(
            ConsoleSettings, source.settings(os.environ) | {"TOPOLOG_HTTP_PORT": str(port)}
        )
    except SettingsInvalid as error:
        raise CommandError("; ".join(error.problems), "see docs/settings.md", EXIT_USAGE) from error
    service = Service(name, settings, set_up(name, TelemetrySettings(log_level="warning")))
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, service.stopping.set)
    async with source.logs() as logs:
        try:
            await service.serve_http()
        except OSError as error:
            raise CommandError(
                f"port {port} cannot be used: {error.strerror}", "topolog console --port 0"
            ) from error
        try:
            urls = source.cells() or {"": source.url or str(source.file() or "")}
            serve(service, {cell: Source(logs[cell], url) for cell, url in urls.items()}, settings)
            service.built = True
            say(f"console: {service.http.url if service.http else ''}{PAGE} (Ctrl-C ends it)")
            return int(await service.run())
        finally:
            await service.close()
