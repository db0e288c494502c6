"""The console, composed: the fold, the samples, the API, and the files of the page."""

from __future__ import annotations

from pathlib import Path

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

from services.console.api import PREFIX, openapi
from services.console.handlers import Handlers
from services.console.live import Live
from services.console.settings import ConsoleSettings
from services.console.what_if import WhatIf
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
    log = await PostgresEventLog.open(settings.database(), role=READER, archive=settings.archive)
    service.on_close("log", log.close)
    serve(service, log, settings.database(), settings)


def serve(service: Service, log: EventLog, database: Address, settings: ConsoleSettings) -> None:
    """Add the tasks and routes to a service. `database` is what a what-if reads."""
    live = Live(log, service.clock, settings.sample_every_s)
    service.health.check("fold", live.waits_for)
    service.task("fold", live.run)
    service.task("samples", live.sample)
    service.task("ages", live.find_ages, lasts=False)
    handlers = Handlers(live, WhatIf(database, settings.what_if_limit_s), settings.cycle)
    endpoints = handlers.endpoints()
    description = openapi(endpoints, VERSION)

    async def described(_request: Request) -> Response:
        return json_response(description)

    async def page(_request: Request) -> Response:
        return RedirectResponse(PAGE, headers=HEADERS)

    assert service.http is not None
    for endpoint in endpoints:
        service.http.add(endpoint.route())
    service.route(f"{PREFIX}/openapi.json", described)
    service.route("/", page)
    service.http.add(Mount(PAGE.rstrip("/"), PageFiles(directory=STATIC, html=True)))
    service.http.open("/", PAGE)


def main() -> int:
    return run_service("topolog-console", ConsoleSettings, build, needs_database=True)
