"""podresources over the kubelet's unix socket: List and GetAllocatableResources.

The kubelet limits all its clients together (100 requests a second, bursts of 10) and answers
RESOURCE_EXHAUSTED above that. The exporter then waits; this is no failure of the node. Must not
know the meaning of the answers.
"""

from __future__ import annotations

import asyncio

from services.exporter import unary, wire
from services.exporter.answers import Allocatable, ListedPod
from services.exporter.podresources import podresources_pb2 as pb
from services.exporter.unary import CallFailed, Connection
from shared.file_signature import ABSENT, signature

SERVICE = "/v1.PodResourcesLister"
DEADLINE_S = 10.0
BACKOFF_S = (0.05, 0.2, 0.8)
KEPT_CALLS = 20


class SourceError(Exception):
    """A failed podresources call; names the socket, the call, the gRPC status and the fix.

    `call` is RTE's name for the call: `list`, `get_allocatable_resources`.
    """

    def __init__(self, problem: str, call: str) -> None:
        super().__init__(problem)
        self.call = call


class AnswerTooLarge(SourceError):
    """The answer exceeds the size limit: many pods of thousands of containers each."""


class GrpcSource:
    """One kubelet's podresources socket; a kubelet may replace it at any time.

    A connection is reused while the socket is the file that it was made for, and for KEPT_CALLS at
    most: making one costs as much as a call, and h2 keeps state of every call.
    """

    def __init__(self, socket: str, deadline_s: float = DEADLINE_S) -> None:
        self._socket = socket
        self._deadline_s = deadline_s
        self._lists = wire.Lists()
        self._open: Connection | None = None
        self._made_for = ABSENT
        self._calls = 0

    async def pods(self) -> tuple[ListedPod, ...]:
        """Return the listed pods. Raises SourceError."""
        data = await self._call("List", pb.ListPodResourcesRequest().SerializeToString())
        return self._lists.read(data)

    async def allocatable(self) -> Allocatable:
        """Return the allocatable resources. Raises SourceError."""
        request = pb.AllocatableResourcesRequest().SerializeToString()
        data = await self._call("GetAllocatableResources", request)
        return wire.allocatable(pb.AllocatableResourcesResponse.FromString(data))

    async def close(self) -> None:
        """Close the socket."""
        if self._open is not None:
            self._open.close()
            self._open = None

    async def _call(self, name: str, request: bytes) -> bytes:
        try:
            return await self._with_backoff(f"{SERVICE}/{name}", request)
        except CallFailed as error:
            raise self._failed(name, error) from error

    async def _with_backoff(self, path: str, request: bytes) -> bytes:
        for pause_s in BACKOFF_S:
            try:
                return await self._once(path, request)
            except CallFailed as error:
                if not _rate_limited(error):
                    raise
                await asyncio.sleep(pause_s)
        return await self._once(path, request)

    async def _once(self, path: str, request: bytes) -> bytes:
        """Call once; on a new connection if the open one was closed by the kubelet.

        h2 then reports UNAVAILABLE, or INTERNAL for what comes after the end.
        """
        current = signature(self._socket)
        if self._calls >= KEPT_CALLS or current != self._made_for:
            await self.close()
        kept, self._open = self._open, None
        if kept is not None:
            try:
                return await self._over(kept, path, request)
            except CallFailed as error:
                if error.code not in (unary.UNAVAILABLE, unary.INTERNAL):
                    raise
        self._made_for, self._calls = current, 0
        return await self._over(Connection(self._socket), path, request)

    async def _over(self, connection: Connection, path: str, request: bytes) -> bytes:
        try:
            answer = await connection.call(path, request, self._deadline_s)
        except BaseException:
            connection.close()
            raise
        self._open = connection
        self._calls += 1
        return answer

    def _failed(self, name: str, error: CallFailed) -> SourceError:
        remedy = _REMEDIES.get(error.code, "see the kubelet's log on the node")
        problem = f"podresources {name} on {self._socket}: {error.code}: {error.details}; {remedy}"
        kind = AnswerTooLarge if _is_too_large(error) else SourceError
        return kind(problem, "list" if name == "List" else "get_allocatable_resources")


def _is_too_large(error: CallFailed) -> bool:
    return error.code == unary.RESOURCE_EXHAUSTED and "larger than max" in error.details


def _rate_limited(error: CallFailed) -> bool:
    """Return True for the rate limiter's answer; one above the size limit has the same code."""
    return error.code == unary.RESOURCE_EXHAUSTED and not _is_too_large(error)


_REMEDIES = {
    unary.UNAVAILABLE: "check that a kubelet listens on it and that this user may write to it",
    unary.DEADLINE_EXCEEDED: "the kubelet did not answer in time",
    unary.RESOURCE_EXHAUSTED: "the kubelet limits its clients, or the answer is above 16 MiB",
    unary.UNIMPLEMENTED: "this kubelet is too old for the podresources v1 API",
}
