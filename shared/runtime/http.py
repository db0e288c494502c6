"""The small HTTP server of a service: /livez, /healthz, /readyz, /metrics, and the service's own routes.

/livez answers while the event loop runs and is what a kubelet may restart on; /healthz is red (503) when a component
stopped for an operator to look at, which a restart would not cure; /readyz is 503 while anything is awaited.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from shared.runtime.health import Health, Status
from shared.runtime.http_access import Access
from shared.runtime.http_reading import TimedProtocol
from shared.telemetry.setup import Telemetry


def json_response(value: object, status_code: int = 200) -> Response:
    """Any msgspec value as a JSON response."""
    return Response(msgspec.json.encode(value, enc_hook=str), status_code, media_type="application/json")


def _health_routes(health: Health, telemetry: Telemetry) -> list[BaseRoute]:
    def answer(status: Status, good: bool) -> Response:
        body = {"ok": good, "red": status.red, "waiting": status.waiting, **status.said}
        return json_response(body, 200 if good else 503)

    async def healthz(_request: Request) -> Response:
        status = health.status()
        return answer(status, status.healthy)

    async def readyz(_request: Request) -> Response:
        status = health.status()
        return answer(status, status.ready)

    async def livez(_request: Request) -> Response:
        return json_response({"ok": True})

    async def metrics(_request: Request) -> Response:
        return Response(telemetry.metrics_page(), media_type="text/plain; version=0.0.4; charset=utf-8")

    return [
        Route("/livez", livez),
        Route("/healthz", healthz),
        Route("/readyz", readyz),
        Route("/metrics", metrics),
    ]


class _Server(uvicorn.Server):
    """uvicorn without its own signal handling: the service decides when to stop."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class HttpServer:
    """Serves until `close`. `url` is known after `start`."""

    def __init__(self, host: str, port: int, health: Health, telemetry: Telemetry, token: str = "") -> None:
        self._address = (host, port)
        self._app = Starlette(routes=_health_routes(health, telemetry))
        config = uvicorn.Config(
            Access(self._app, token),
            http=TimedProtocol,
            ws="none",
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_keep_alive=30,
            timeout_graceful_shutdown=3,
            server_header=False,
        )
        self._server = _Server(config)
        self._task: asyncio.Task[None] | None = None
        self.url = ""

    def add(self, route: BaseRoute) -> None:
        """Serve one more route."""
        self._app.router.routes.append(route)

    async def start(self) -> None:
        """Bind and serve. Raises OSError when the address is taken."""
        listener = socket.create_server(self._address, family=socket.AF_INET6 if ":" in self._address[0] else socket.AF_INET)
        host, port = listener.getsockname()[:2]
        self.url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        self._task = asyncio.create_task(self._server.serve(sockets=[listener]), name="http")

    async def close(self) -> None:
        """Finish what is being answered, then stop."""
        self._server.should_exit = True
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)
