"""podresources over the kubelet's unix socket: List and GetAllocatableResources with a size cap, a deadline, backoff.

The kubelet limits all its clients together (100 requests a second, bursts of 10) and answers RESOURCE_EXHAUSTED: that
is waited out and is no failure of the node. Must not know what the answers mean.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import grpc
import grpc.aio

from services.exporter import wire
from services.exporter.answers import Allocatable, ListedPod
from services.exporter.podresources import podresources_pb2 as pb
from services.exporter.podresources.podresources_pb2_grpc import PodResourcesListerStub

MAX_MESSAGE_BYTES = 16 * 1024 * 1024
DEADLINE_S = 10.0
BACKOFF_S = (0.05, 0.2, 0.8)
CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.default_authority", "localhost"),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 5_000),
    ("grpc.enable_retries", 0),
)
_Answer = TypeVar("_Answer")


class SourceError(Exception):
    """podresources could not be asked; names the socket, the call, the gRPC status and a remedy. `call` is RTE's name for the
    call: `list`, `get_allocatable_resources`."""

    def __init__(self, problem: str, call: str) -> None:
        super().__init__(problem)
        self.call = call


class GrpcSource:
    """One kubelet's podresources socket. Cheap to keep; reconnects by itself when the kubelet replaces the socket."""

    def __init__(self, socket: str, deadline_s: float = DEADLINE_S) -> None:
        self._socket = socket
        self._deadline_s = deadline_s
        self._channel = grpc.aio.insecure_channel(f"unix:{socket}", options=CHANNEL_OPTIONS)
        stub: Any = PodResourcesListerStub(self._channel)  # type: ignore[no-untyped-call]
        self._list: Callable[..., Awaitable[pb.ListPodResourcesResponse]] = stub.List
        self._allocatable: Callable[..., Awaitable[pb.AllocatableResourcesResponse]] = stub.GetAllocatableResources

    async def pods(self) -> tuple[ListedPod, ...]:
        """The listed pods. Raises SourceError."""
        return wire.pods(await self._call("List", self._list, pb.ListPodResourcesRequest()))

    async def allocatable(self) -> Allocatable:
        """What the node's managers may hand out. Raises SourceError."""
        answer = await self._call("GetAllocatableResources", self._allocatable, pb.AllocatableResourcesRequest())
        return wire.allocatable(answer)

    async def close(self) -> None:
        """Close the channel; calls under way are cancelled."""
        await self._channel.close()

    async def _call(self, name: str, method: Callable[..., Awaitable[_Answer]], request: object) -> _Answer:
        for pause_s in BACKOFF_S:
            try:
                return await method(request, timeout=self._deadline_s)
            except grpc.aio.AioRpcError as error:
                if not _rate_limited(error):
                    raise self._failed(name, error) from error
            await asyncio.sleep(pause_s)
        try:
            return await method(request, timeout=self._deadline_s)
        except grpc.aio.AioRpcError as error:
            raise self._failed(name, error) from error

    def _failed(self, name: str, error: grpc.aio.AioRpcError) -> SourceError:
        code = error.code()
        remedy = _REMEDIES.get(code, "see the kubelet's log on the node")
        problem = f"podresources {name} on {self._socket}: {code.name}: {error.details()}; {remedy}"
        return SourceError(problem, "list" if name == "List" else "get_allocatable_resources")


def _rate_limited(error: grpc.aio.AioRpcError) -> bool:
    """An answer above the size cap has the same code; only the rate limiter's is worth another try."""
    return error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED and "larger than max" not in (error.details() or "")


_REMEDIES = {
    grpc.StatusCode.UNAVAILABLE: "is a kubelet listening there, and may this user write to the socket?",
    grpc.StatusCode.DEADLINE_EXCEEDED: "the kubelet did not answer in time",
    grpc.StatusCode.RESOURCE_EXHAUSTED: "the kubelet limits its clients, or the answer is above 16 MiB",
    grpc.StatusCode.UNIMPLEMENTED: "this kubelet is too old for the podresources v1 API",
}
