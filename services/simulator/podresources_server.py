"""The kubelet's podresources API on a unix socket: List, GetAllocatableResources and Get, for one
simulated node.

Answers are bytes that the caller prepares, so that a call costs no encoding. The socket is replaced
at every start, as a kubelet does. This module does not know admission.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

import grpc
import grpc.aio

from services.exporter.podresources import podresources_pb2 as pb

SERVICE = "v1.PodResourcesLister"
MAX_SOCKET_BYTES = 107
_OPTIONS = (("grpc.so_reuseport", 0), ("grpc.max_send_message_length", 16 * 1024 * 1024))
_Handler = Callable[[bytes, "grpc.aio.ServicerContext[bytes, bytes]"], Awaitable[bytes]]


class Answers(Protocol):
    """The encoded answers of a simulated kubelet (podresources v1)."""

    def list_bytes(self) -> bytes:
        """Return a ListPodResourcesResponse."""

    def allocatable_bytes(self) -> bytes:
        """Return an AllocatableResourcesResponse."""

    def pod_bytes(self, namespace: str, name: str) -> bytes | None:
        """Return a GetPodResourcesResponse, None if the pod is unknown or not active."""


class PodresourcesServer:
    """One listening socket. `start` replaces a stale socket; `stop` removes it."""

    def __init__(self, socket: Path, answers: Answers) -> None:
        size = len(os.fsencode(socket))
        if size > MAX_SOCKET_BYTES:
            raise ValueError(
                f"socket path {socket} has {size} bytes, the kernel allows {MAX_SOCKET_BYTES}; "
                "use a shorter folder"
            )
        self._socket = socket
        self._answers = answers
        self._server: grpc.aio.Server | None = None

    async def start(self) -> None:
        """Listen. Raises OSError or RuntimeError when the socket cannot be bound."""
        self._socket.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
        self._socket.unlink(missing_ok=True)
        server = grpc.aio.server(options=_OPTIONS)
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(SERVICE, self._handlers()),)
        )
        server.add_insecure_port(f"unix:{self._socket}")
        await server.start()
        self._server = server

    async def stop(self) -> None:
        """Stop listening at once and remove the socket."""
        if self._server is not None:
            await self._server.stop(grace=None)
            self._server = None
        self._socket.unlink(missing_ok=True)

    def _handlers(self) -> dict[str, grpc.RpcMethodHandler[bytes, bytes]]:
        methods: dict[str, _Handler] = {
            "List": self._list,
            "GetAllocatableResources": self._allocatable,
            "Get": self._get,
        }
        return {
            name: grpc.unary_unary_rpc_method_handler(method) for name, method in methods.items()
        }

    async def _list(self, request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        return self._answers.list_bytes()

    async def _allocatable(
        self, request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]
    ) -> bytes:
        return self._answers.allocatable_bytes()

    async def _get(self, request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        asked = pb.GetPodResourcesRequest.FromString(request)
        answer = self._answers.pod_bytes(asked.pod_namespace, asked.pod_name)
        if answer is None:
            text = f"pod {asked.pod_name} in namespace {asked.pod_namespace} not found"
            await context.abort(grpc.StatusCode.UNKNOWN, text)
            raise AssertionError("abort raises")
        return answer
