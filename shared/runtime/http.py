"""The HTTP server of a service: /livez, /healthz, /readyz, /metrics, and the service's routes.

/livez answers while the event loop runs; a kubelet may restart the container on it. /healthz is 503
if a component has stopped until an operator acts, which a restart would not cure. /readyz is 503
while the service waits for anything.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from shared.runtime import listening
from shared.runtime.health import Health, Status
from shared.runtime.http_access import Access
from shared.runtime.http_reading import READ_LIMIT_S, TimedProtocol
from shared.runtime.http_tls import Certificates
from shared.runtime.secret_file import Token
from shared.runtime.settings import HttpTls
from shared.telemetry import logs, names
from shared.telemetry.setup import Telemetry

NO_TLS = HttpTls()


def json_response(value: object, status_code: int = 200) -> Response:
    return Response(
        msgspec.json.encode(value, enc_hook=str), status_code, media_type="application/json"
    )


def _health_routes(health: Health, telemetry: Telemetry) -> list[BaseRoute]:
    def answer(status: Status, good: bool) -> Response:
        body = {"ok": good, "red": status.red, "waiting": status.waiting, **status.details}
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
        return Response(
            telemetry.metrics_page(), media_type="text/plain; version=0.0.4; charset=utf-8"
        )

    return [
        Route("/livez", livez),
        Route("/healthz", healthz),
        Route("/readyz", readyz),
        Route("/metrics", metrics),
    ]


class _Server(uvicorn.Server):
    """uvicorn without its signal handling and without its polling ten times a second."""

    def __init__(
        self, config: uvicorn.Config, listener: socket.socket, tls: Certificates | None
    ) -> None:
        super().__init__(config)
        self._listener, self._tls = listener, tls
        self._stop = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=[])
        limits: dict[str, Any] = (
            {"ssl": self._tls.context, "ssl_handshake_timeout": READ_LIMIT_S} if self._tls else {}
        )
        server = await asyncio.get_running_loop().create_server(
            self._protocol, sock=self._listener, **limits
        )
        self.servers = [server]

    async def main_loop(self) -> None:
        await self._stop.wait()

    def stop(self) -> None:
        self.should_exit = True
        self._stop.set()

    def _protocol(self) -> asyncio.Protocol:
        return TimedProtocol(self.config, self.server_state, self.lifespan.state)


class HttpServer:
    """Serves until `close`. `url` is set by `start`."""

    def __init__(
        self,
        host: str,
        port: int,
        health: Health,
        telemetry: Telemetry,
        token: Token = "",
        tls: HttpTls = NO_TLS,
        hosts: Sequence[str] = (),
    ) -> None:
        self._address = (host, port)
        self._wanted = tls
        self._app = Starlette(routes=_health_routes(health, telemetry))
        self._access = Access(self._app, token, bool(tls.client_ca), hosts)
        self._config = uvicorn.Config(
            self._access,
            http=TimedProtocol,
            ws="none",
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_keep_alive=30,
            timeout_graceful_shutdown=3,
            server_header=False,
            date_header=False,
        )
        self._server: _Server | None = None
        self._task: asyncio.Task[None] | None = None
        self.url = ""

    def add(self, route: BaseRoute) -> None:
        self._app.router.routes.append(route)

    def open(self, path: str, prefix: str) -> None:
        """Serve a path, and all paths below a prefix, without the token: files of a page, which
        hold nothing secret."""
        self._access.open(path, prefix)

    def leave_out(self, path: str) -> None:
        routes = self._app.router.routes
        routes[:] = [route for route in routes if getattr(route, "path", "") != path]

    async def start(self) -> None:
        """Bind and serve. Raises OSError if the address is in use, HttpTlsError for unusable
        certificates.
        """
        tls = Certificates(self._wanted, self._tell_of_files) if self._wanted != NO_TLS else None
        listener = listening.listener(*self._address)
        host, port = listener.getsockname()[:2]
        name = f"[{host}]" if ":" in host else host
        self.url = f"{'https' if tls else 'http'}://{name}:{port}"
        self._server = _Server(self._config, listener, tls)
        self._task = asyncio.create_task(self._server.serve(), name="http")

    def _tell_of_files(self, problem: str) -> None:
        logs.get("http").warning(names.HTTP_CERTIFICATE, problem=problem)

    async def close(self) -> None:
        """Finish running requests, then stop."""
        if self._server is not None:
            self._server.stop()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)
