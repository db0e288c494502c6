"""The extender's HTTP server: four verbs, TLS with client certificates, bounded bodies.

`/bind` reserves, so only kube-scheduler may ask. Beyond the loopback address the server speaks TLS
with clients that have a certificate of the given authority, and of a given name if names are given.
Certificates and authority are read again when their files change. On the loopback address a browser
on the same machine is kept out: a request must name the server as its Host and bring JSON, which a
web page cannot do without asking first.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import ssl
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from services.scheduler.extender.extender import CannotAnswer, Extender
from services.scheduler.extender.settings import ExtenderSettings
from shared.runtime import listening
from shared.runtime.http import json_response
from shared.runtime.http_reading import TimedProtocol
from shared.runtime.http_tls import Certificates
from shared.runtime.settings import HttpTls
from shared.telemetry import logs, names
from shared.telemetry.instruments import count, timed

# Without node cache 5,000 whole nodes come with each request.
MAX_BODY_BYTES = 256 << 20
# From the connection, or the first byte of a later request, to the last byte of such a body.
READ_LIMIT_S = 30.0
# Beyond these, the connection that has waited longest for its request is closed: all, and those of
# one address.
MOST_CONNECTIONS = 512
MOST_FROM_ONE_ADDRESS = 256


class ExtenderServer:
    """Serves until `close`; `url` is known after `start`."""

    def __init__(self, extender: Extender, settings: ExtenderSettings) -> None:
        self._extender, self._settings = extender, settings
        self._out = logs.get("extender")
        routes = [
            Route(f"/{verb}", self._endpoint(verb), methods=["POST"])
            for verb in ("filter", "prioritize", "preempt", "bind")
        ]
        self._config = uvicorn.Config(
            Starlette(routes=routes),
            log_config=None,
            access_log=False,
            lifespan="off",
            limit_concurrency=2 * MOST_CONNECTIONS,
            timeout_keep_alive=75,
            timeout_graceful_shutdown=3,
            server_header=False,
            http=_protocol(settings.clients, self._out),
            ssl_context_factory=_tls(settings, self._log_certificate)
            if settings.certificate
            else None,
        )
        self._server = _Server(self._config)
        self.url = ""

    async def run(self) -> None:
        """Serve until cancelled. Raises OSError if the address is taken, HttpTlsError for
        certificates that cannot be used.
        """
        address = self._settings.host, self._settings.port
        listener = listening.listener(*address)
        host, port = listener.getsockname()[:2]
        self.url = f"{'https' if self._settings.certificate else 'http'}://{host}:{port}"
        self._out.info(names.EXTENDER_SERVES, url=self.url)
        try:
            await self._server.serve(sockets=[listener])
        finally:
            self._server.should_exit = True

    def _log_certificate(self, problem: str) -> None:
        self._out.warning(names.EXTENDER_CERTIFICATE, problem=problem)

    def _endpoint(self, verb: str) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            with timed(names.EXTENDER_LATENCY, verb=verb):
                response = await self._answer(verb, request)
            count(names.EXTENDER_REQUESTS, verb=verb, status=str(response.status_code))
            return response

        return endpoint

    async def _answer(self, verb: str, request: Request) -> Response:
        """Only 200 is an answer for kube-scheduler; any other text shows in the pod's condition."""
        try:
            self._require_kube_scheduler(request)
            body = await _body(request)
            if verb == "bind":
                return json_response(await _until_disconnected(request, self._extender.bind(body)))
            if verb == "filter":
                return json_response(await self._extender.filter(body))
            return json_response(getattr(self._extender, verb)(body))
        except CannotAnswer as error:
            return Response(f"topolog: {error}", error.status, media_type="text/plain")
        except ClientDisconnect:
            return Response(status_code=499)
        except Exception as error:
            self._out.error(names.EXTENDER_FAILED, verb=verb, problem=repr(error))
            return Response(
                f"topolog: internal error in {verb}: {error!r}", 500, media_type="text/plain"
            )

    def _require_kube_scheduler(self, request: Request) -> None:
        """Refuse requests of web pages: cross-site posts, and names that resolve to this address
        (DNS rebinding)."""
        content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if content_type != "application/json":
            raise CannotAnswer(415, "Content-Type must be application/json")
        if "origin" in request.headers:
            raise CannotAnswer(403, "requests of web pages (with an Origin) are refused")
        host = request.headers.get("host", "")
        if not self._settings.certificate and not _is_address(host, self._settings.host):
            raise CannotAnswer(421, f"Host must be {self._settings.host} (found {host!r})")


def _is_address(host: str, configured: str) -> bool:
    """Return whether a Host header names this server: the configured host, or loopback."""
    name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
    name = name.strip("[]").lower()
    if name in (configured.lower(), "localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


async def _body(request: Request) -> bytes:
    chunks, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > MAX_BODY_BYTES:
            raise CannotAnswer(
                413, f"a body above {MAX_BODY_BYTES} bytes; set nodeCacheCapable: true"
            )
        chunks.append(chunk)
    return b"".join(chunks)


async def _until_disconnected(request: Request, work: Awaitable[object]) -> object:
    """Return the answer. Raises ClientDisconnect, and cancels the work, if the client leaves."""
    task = asyncio.ensure_future(work)
    disconnected = asyncio.ensure_future(_disconnected(request))
    await asyncio.wait({task, disconnected}, return_when=asyncio.FIRST_COMPLETED)
    disconnected.cancel()
    if not task.done():
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        raise ClientDisconnect
    return task.result()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


class _Server(uvicorn.Server):
    """uvicorn without its own signal handling."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _Protocol(TimedProtocol):
    """Requests in limited time, and a limited number of connections: of all, and of one address."""

    read_limit_s = READ_LIMIT_S
    most_connections = MOST_CONNECTIONS

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        address = self.client[0] if self.client else ""
        same = [
            connection
            for connection in self.connections
            if isinstance(connection, _Protocol)
            and connection.client is not None
            and connection.client[0] == address
        ]
        if len(same) > MOST_FROM_ONE_ADDRESS:
            self.give_up_longest(same)


def _protocol(clients: tuple[str, ...], out: Any) -> type[asyncio.Protocol]:
    """Return the protocol; with names, connections of other clients are closed at once."""

    class Named(_Protocol):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            name = _common_name(transport.get_extra_info("peercert") or {})
            if name in clients:
                super().connection_made(transport)
                return
            out.warning(names.EXTENDER_STRANGER, client=name)
            transport.abort()

        def data_received(self, data: bytes) -> None:
            if hasattr(self, "flow"):
                super().data_received(data)

        def connection_lost(self, exc: Exception | None) -> None:
            if hasattr(self, "flow"):
                super().connection_lost(exc)

    return Named if clients else _Protocol


def _common_name(certificate: dict[str, Any]) -> str:
    for part in certificate.get("subject", ()):
        for key, value in part:
            if key == "commonName":
                return str(value)
    return ""


def _tls(
    settings: ExtenderSettings, log: Callable[[str], None]
) -> Callable[[uvicorn.Config, Callable[[], ssl.SSLContext]], ssl.SSLContext]:
    """Handshakes use the files as they are at that moment. Open connections go on; kube-scheduler
    closes idle ones.
    """
    files = HttpTls(settings.certificate, settings.key, settings.client_ca)
    certificates = Certificates(files, log, clients_must=True)
    return lambda _config, _default: certificates.context
