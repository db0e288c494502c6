"""The node as its container runtime tells it: sandboxes, running containers, what each holds, in
podresources' words.

CRI knows what was given, not what may be given: that is the machine less what settings reserve.
Answers about a container are kept as long as it runs; its cpuset is read from its cgroup each time,
since the kubelet may change it. Must not know reports.
"""

from __future__ import annotations

import asyncio
from typing import Protocol, TypeVar

from google.protobuf.message import DecodeError

from services.exporter import unary
from services.exporter.answers import Allocatable, ListedContainer, ListedPod, MemoryBlock
from services.exporter.cri import cri_pb2 as pb
from services.exporter.cri import devices, info
from services.exporter.cri.devices import Device, LinkedTree, Resource
from services.exporter.cri.info import Known
from services.exporter.cri.reserve import Reserve
from services.exporter.source_grpc import SourceError
from services.exporter.sysfs import NumaNode, read_machine
from services.exporter.unary import CallFailed

AT_ONCE = 8
_CPUSETS = ("fs/cgroup/{}/cpuset.{}", "fs/cgroup/cpuset/{}/cpuset.{}")
"""The same file in cgroup v2 and v1."""
SERVICE = "/runtime.v1.RuntimeService"


class _Message(Protocol):
    def SerializeToString(self) -> bytes: ...  # noqa: N802


_Answer = TypeVar(
    "_Answer",
    pb.VersionResponse,
    pb.ListPodSandboxResponse,
    pb.ListContainersResponse,
    pb.ContainerStatusResponse,
)


class CriSource:
    """One runtime's socket (CRI v1)."""

    def __init__(
        self,
        socket: str,
        tree: LinkedTree,
        resources: tuple[Resource, ...],
        reserve: Reserve,
        deadline_s: float,
    ) -> None:
        self._socket = socket
        self._tree = tree
        self._resources = resources
        self._reserve = reserve
        self._deadline_s = deadline_s
        self._runtime = ""
        self._known: dict[str, Known] = {}
        self._devices: dict[str, Device] = {}

    async def pods(self) -> tuple[ListedPod, ...]:
        """The pods whose sandbox is ready, with their running containers. Raises SourceError,
        CriInfoError.
        """
        ready = pb.PodSandboxFilter(state=pb.PodSandboxStateValue(state=pb.SANDBOX_READY))
        running = pb.ContainerFilter(state=pb.ContainerStateValue(state=pb.CONTAINER_RUNNING))
        sandboxes = await self._call(
            "ListPodSandbox", pb.ListPodSandboxRequest(filter=ready), pb.ListPodSandboxResponse
        )
        containers = await self._call(
            "ListContainers", pb.ListContainersRequest(filter=running), pb.ListContainersResponse
        )
        homes = {
            one.id: (one.metadata.namespace, one.metadata.name)
            for one in sandboxes.items
            if one.state == pb.SANDBOX_READY
        }
        listed = [
            one
            for one in containers.containers
            if one.pod_sandbox_id in homes and one.state == pb.CONTAINER_RUNNING
        ]
        await self._learn(listed)
        pods: dict[tuple[str, str], list[ListedContainer]] = {home: [] for home in homes.values()}
        for one in sorted(listed, key=lambda one: (one.metadata.name, one.id)):
            if one.id in self._known:
                pods[homes[one.pod_sandbox_id]].append(self._container(one))
        return tuple(ListedPod(*home, tuple(pods[home])) for home in sorted(pods))

    async def allocatable(self) -> Allocatable:
        """What the machine has beyond the reserve. Raises SysfsError."""
        nodes = read_machine(self._tree).nodes
        self._devices = devices.inventory(self._tree, self._resources)
        reserved = self._reserve.cpus
        cpus = (
            ()
            if reserved is None
            else tuple(sorted({cpu for node in nodes for cpu in node.cpus} - reserved))
        )
        blocks = (
            tuple(block for node in nodes for block in self._blocks(node))
            if self._reserve.memory
            else ()
        )
        return Allocatable(cpus, blocks, devices.groups(self._devices, self._devices))

    async def close(self) -> None:
        """Nothing is kept open."""

    def _blocks(self, node: NumaNode) -> list[MemoryBlock]:
        """As the Memory Manager counts: memory in hugepages is no memory."""
        sizes = {"memory": node.memory_bytes - sum(node.hugepages.values()), **node.hugepages}
        left = {
            name: size - self._reserve.memory.get((node.id, name), 0)
            for name, size in sizes.items()
        }
        return [
            MemoryBlock(name, (node.id,), left[name]) for name in sorted(left) if left[name] > 0
        ]

    async def _learn(self, listed: list[pb.Container]) -> None:
        """Ask about the containers that are new, and forget those that are gone."""
        self._known = {one.id: self._known[one.id] for one in listed if one.id in self._known}
        fresh = [one for one in listed if one.id not in self._known]
        if fresh:
            version = await self._call("Version", pb.VersionRequest(), pb.VersionResponse)
            self._runtime = f"{version.runtime_name} {version.runtime_version} on {self._socket}"[
                :200
            ]
        for start in range(0, len(fresh), AT_ONCE):
            asked = fresh[start : start + AT_ONCE]
            answers = await asyncio.gather(*(self._status(one.id) for one in asked))
            for one, answer in zip(asked, answers, strict=True):
                if answer is not None:
                    self._known[one.id] = info.read(dict(answer.info), self._who(one))

    async def _status(self, container_id: str) -> pb.ContainerStatusResponse | None:
        """None for a container that ended meanwhile."""
        request = pb.ContainerStatusRequest(container_id=container_id, verbose=True)
        try:
            return await self._call("ContainerStatus", request, pb.ContainerStatusResponse)
        except SourceError as error:
            cause = error.__cause__
            if isinstance(cause, CallFailed) and cause.code == unary.NOT_FOUND:
                return None
            raise

    def _container(self, one: pb.Container) -> ListedContainer:
        known, who = self._known[one.id], self._who(one)
        cpus = info.own_cpus(known, self._now(known, "cpus") or known.cpus, who)
        memory = info.own_memory(known, self._now(known, "mems") or known.mems, who)
        held = devices.held(known, self._tree, self._devices)
        return ListedContainer(one.metadata.name, cpus, memory, devices.groups(self._devices, held))

    def _now(self, known: Known, what: str) -> str:
        """What the container's cgroup says; empty where it cannot be read or inherits."""
        found = (self._tree.text(path.format(known.cgroup, what)) for path in _CPUSETS)
        return next((text.strip() for text in found if text and text.strip()), "")

    def _who(self, one: pb.Container) -> str:
        return f"{self._runtime}: container {one.metadata.name[:80]!r} ({one.id[:12]})"

    async def _call(self, name: str, request: _Message, answer: type[_Answer]) -> _Answer:
        try:
            data = await unary.call(
                self._socket, f"{SERVICE}/{name}", request.SerializeToString(), self._deadline_s
            )
            return answer.FromString(data)
        except (CallFailed, DecodeError) as error:
            code = error.code if isinstance(error, CallFailed) else unary.INTERNAL
            remedy = _REMEDIES.get(code, "see the runtime's log on the node")
            said = error.details if isinstance(error, CallFailed) else f"no message of CRI: {error}"
            raise SourceError(
                f"CRI {name} on {self._socket}: {code}: {said}; {remedy}", "list"
            ) from error


_REMEDIES = {
    unary.UNAVAILABLE: "is a container runtime listening there, and may this user write to the socket?",
    unary.DEADLINE_EXCEEDED: "the runtime did not answer in time",
    unary.UNIMPLEMENTED: "this runtime is too old for CRI v1 (containerd 1.6, CRI-O 1.23), or has it switched off",
}
