"""The extender's own HTTP server: four verbs, TLS with client certificates, bounded bodies.
Composition and wire only.

`/bind` reserves, so that nobody but kube-scheduler may ask: beyond the loopback address it is
served by TLS to clients with a certificate of the given authority, and of one of the given names
where names are given. Certificates and authority are read again when their files change.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from services.scheduler.extender.extender import CannotAnswer, Extender
from services.scheduler.extender.settings import ExtenderSettings
from shared.runtime import listening
from shared.runtime.http import json_response
from shared.runtime.http_tls import Certificates
from shared.runtime.settings import HttpTls
from shared.telemetry import logs, names
from shared.telemetry.instruments import count, timed

MAX_BODY_BYTES = 256 << 20
"""Without node cache 5,000 full nodes come with each request."""
MAX_REQUESTS = 512


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
            Starlette(routes=routes), log_config=None, access_log=False, lifespan="off", limit_concurrency=MAX_REQUESTS,
            timeout_keep_alive=75, timeout_graceful_shutdown=3, server_header=False, http=_protocol(settings.clients, self._out),
            ssl_context_factory=_tls(settings, self._tell_of_files) if settings.certificate else None,
        )  # fmt: skip
        self._server = _Server(self._config)
        self.url = ""

    async def run(self) -> None:
        """Serve until cancelled. Raises OSError when the address is taken, HttpTlsError for
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

    def _tell_of_files(self, problem: str) -> None:
        self._out.warning(names.EXTENDER_CERTIFICATE, problem=problem)

    def _endpoint(self, verb: str) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            with timed(names.EXTENDER_LATENCY, verb=verb):
                response = await self._answer(verb, request)
            count(names.EXTENDER_REQUESTS, verb=verb, status=str(response.status_code))
            return response

        return endpoint

    async def _answer(self, verb: str, request: Request) -> Response:
        """Only 200 is an answer to kube-scheduler; anything else shows in the pod's condition as it
        stands here.
        """
        try:
            body = await _body(request)
            if verb == "bind":
                return json_response(await _unless_gone(request, self._extender.bind(body)))
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


async def _unless_gone(request: Request, work: Awaitable[object]) -> object:
    """The answer, or ClientDisconnect as soon as nobody waits for it; the work is then cancelled."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_disconnected(request))
    await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
    gone.cancel()
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


def _protocol(clients: tuple[str, ...], out: Any) -> type[asyncio.Protocol]:
    """uvicorn's protocol; with names, connections of other clients are closed before they ask
    anything.
    """

    class Named(HttpToolsProtocol):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            peer = transport.get_extra_info("peercert") or {}
            name = next(
                (
                    value
                    for part in peer.get("subject", ())
                    for key, value in part
                    if key == "commonName"
                ),
                "",
            )
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

    return Named if clients else HttpToolsProtocol


def _tls(
    settings: ExtenderSettings, tell: Callable[[str], None]
) -> Callable[[uvicorn.Config, Callable[[], ssl.SSLContext]], ssl.SSLContext]:
    """Handshakes begin with the files as they are then. Connections that stand go on:
    kube-scheduler closes idle ones.
    """
    wanted = HttpTls(settings.certificate, settings.key, settings.client_ca)
    certificates = Certificates(wanted, tell, clients_must=True)
    return lambda _config, _default: certificates.context
