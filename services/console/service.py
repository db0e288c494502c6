"""The console, composed: the fold, the samples, the API, and the files of the page."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

from services.console.api import PREFIX, openapi
from services.console.handlers import Handlers
from services.console.live import Live
from services.console.settings import ConsoleSettings
from services.console.what_if import WhatIf
from services.embedded.running import read_cells
from shared.domain.secret_url import Address
from shared.domain.version import VERSION
from shared.eventlog.port import EventLog
from shared.eventlog.postgres import PostgresEventLog
from shared.eventlog.postgres_connection import READER
from shared.runtime.app import Service, run_service
from shared.runtime.http import json_response

STATIC = Path(__file__).parent / "static"
PAGE = "/console/"
# Only files of this server, no inline script or style, no form target, no embedding page.
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


class PageFiles(StaticFiles):
    """The page, with its security headers."""

    async def get_response(self, path: str, scope: object) -> Response:
        response = await super().get_response(path, scope)  # type: ignore[arg-type]
        response.headers.update(HEADERS)
        return response


async def build(service: Service, settings: ConsoleSettings) -> None:
    urls: dict[str, Address] = {"": settings.database()}
    if settings.cells_file:
        urls = dict(read_cells(Path(settings.cells_file)))
    logs = dict[str, Source]()
    for cell, url in urls.items():
        log = await PostgresEventLog.open(url, role=READER, archive=settings.archive)
        service.on_close(f"log {cell}".strip(), log.close)
        logs[cell] = Source(log, url)
    serve(service, logs, settings)


class Source(NamedTuple):
    """The log of a cell, or the only one, and the database that a what-if reads."""

    log: EventLog
    database: Address


def serve(service: Service, logs: Mapping[str, Source], settings: ConsoleSettings) -> None:
    """Add the tasks and routes to a service. The first log's API is at PREFIX; with several cells,
    that of each is at /cells/CELL + PREFIX."""

    async def page(_request: Request) -> Response:
        return RedirectResponse(PAGE, headers=HEADERS)

    async def cells(_request: Request) -> Response:
        return json_response([cell for cell in logs if cell])

    assert service.http is not None
    for number, (cell, source) in enumerate(logs.items()):
        prefixes = ([] if number else [""]) + ([f"/cells/{cell}"] if cell else [])
        _serve_log(service, cell, source, settings, prefixes)
        for prefix in prefixes:
            service.route(f"{prefix}{PREFIX}/cells", cells)
    service.route("/", page)
    service.http.add(Mount(PAGE.rstrip("/"), PageFiles(directory=STATIC, html=True)))
    service.http.open("/", PAGE)


def _serve_log(
    service: Service, cell: str, source: Source, settings: ConsoleSettings, prefixes: list[str]
) -> None:
    live = Live(source.log, service.clock, settings.sample_every_s)
    service.health.check(f"fold {cell}".strip(), live.waits_for)
    service.task(f"fold {cell}".strip(), live.run)
    service.task(f"samples {cell}".strip(), live.sample)
    service.task(f"ages {cell}".strip(), live.find_ages, lasts=False)
    what_if = WhatIf(source.database, settings.what_if_limit_s)
    endpoints = Handlers(live, what_if, settings.cycle).endpoints()
    description = openapi(endpoints, VERSION)

    async def described(_request: Request) -> Response:
        return json_response(description)

    assert service.http is not None
    for prefix in prefixes:
        for endpoint in endpoints:
            service.http.add(endpoint.route(prefix))
        service.route(f"{prefix}{PREFIX}/openapi.json", described)


def main() -> int:
    return run_service("topolog-console", ConsoleSettings, build, needs_database=True)
