"""Running the API server on a port, inside a loop that others (kubelets, workload player) share.
Must not know objects.
"""

from __future__ import annotations

import asyncio
import socket

import uvicorn

from services.simulator.api.app import ApiApp, build_app
from services.simulator.api.cluster_store import ClusterStore
from shared.runtime import listening


class ApiServer:
    """A running server."""

    def __init__(
        self, server: uvicorn.Server, app: ApiApp, task: asyncio.Task[None], address: str
    ) -> None:
        self._server = server
        self._app = app
        self._task = task
        self.url = f"http://{address}"

    async def stop(self) -> None:
        """End watches, refuse new connections, and wait for open requests."""
        self._server.should_exit = True
        self._app.end_watches()
        await asyncio.wait([self._task])

    async def wait(self) -> None:
        """Wait until the server has stopped."""
        await asyncio.wait([self._task])


async def start(store: ClusterStore, host: str = "127.0.0.1", port: int = 0) -> ApiServer:
    """Start serving in the running loop. Port 0 chooses a free port. Raises OSError if the address
    is in use.
    """
    listener = listening.listener(host, port, both_families=True)
    taken = listener.getsockname()[1]
    address = f"[{host}]:{taken}" if ":" in host else f"{host}:{taken}"
    app = build_app(store)
    server = uvicorn.Server(_config(app))
    task = asyncio.get_running_loop().create_task(_run(server, listener))
    while not server.started and not task.done():  # noqa: ASYNC110  (uvicorn offers no event for it)
        await asyncio.sleep(0.005)
    return ApiServer(server, app, task, address)


def _config(app: ApiApp) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http="httptools",
        ws="none",
        lifespan="off",
        access_log=False,
        log_config=None,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        timeout_keep_alive=120,
        timeout_graceful_shutdown=3,
    )


async def _run(server: uvicorn.Server, listener: socket.socket) -> None:
    """Run uvicorn without its signal handlers, because the process has its own."""
    try:
        await server._serve([listener])
    finally:
        listener.close()


async def serve(store: ClusterStore, host: str = "127.0.0.1", port: int = 8001) -> None:
    """Serve until cancelled."""
    running = await start(store, host, port)
    try:
        await running.wait()
    finally:
        await running.stop()
