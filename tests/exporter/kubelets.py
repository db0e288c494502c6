"""A podresources server for tests: real gRPC over a unix socket, answers set by the test."""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc
import grpc.aio

from services.exporter.podresources import podresources_pb2 as pb

SYSFS = {
    "online": "0-1\n",
    "node0/cpulist": "0-3\n",
    "node0/distance": "10 21\n",
    "node0/meminfo": "Node 0 MemTotal: 2048 kB\n",
    "node1/cpulist": "4-7\n",
    "node1/distance": "21 10\n",
    "node1/meminfo": "Node 1 MemTotal: 2048 kB\n",
}


def write_sysfs(root: Path) -> Path:
    """Write a machine of two zones with four CPUs each, and a boot id."""
    for name, text in SYSFS.items():
        path = root / "devices/system/node" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (root / "boot_id").write_text("boot-1\n")
    return root


class Kubelet:
    """A kubelet that answers List with `pods`. It answers the first `refusals` calls with
    RESOURCE_EXHAUSTED. With `hang` it never answers.
    """

    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self.pods: dict[str, list[int]] = {}
        self.refusals = 0
        self.hang = False
        self.padding = 0
        self.calls = 0
        self._server: grpc.aio.Server | None = None

    async def start(self) -> Kubelet:
        self._server = grpc.aio.server(options=[("grpc.max_send_message_length", -1)])
        handlers = {"List": self._list, "GetAllocatableResources": self._allocatable}
        methods: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
            name: grpc.unary_unary_rpc_method_handler(method) for name, method in handlers.items()
        }
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("v1.PodResourcesLister", methods),)
        )
        self._server.add_insecure_port(f"unix:{self.socket}")
        await self._server.start()
        return self

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(None)
        self.socket.unlink(missing_ok=True)

    async def _list(self, request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        self.calls += 1
        if self.hang:
            await asyncio.sleep(60)
        if self.refusals:
            self.refusals -= 1
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")
        response = pb.ListPodResourcesResponse()
        for name, cpus in self.pods.items():
            container = response.pod_resources.add(name=name, namespace="default").containers.add(
                name="c"
            )
            container.cpu_ids.extend(cpus)
        if self.padding:
            response.pod_resources.add(name="x" * self.padding)
        return response.SerializeToString()

    async def _allocatable(
        self, request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]
    ) -> bytes:
        return pb.AllocatableResourcesResponse(cpu_ids=[1, 2, 3, 5, 6, 7]).SerializeToString()
