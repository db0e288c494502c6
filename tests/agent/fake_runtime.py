"""A container runtime that speaks NRI over a unix socket, with cgroups (v2) as files.

Like containerd it stores what plugins set, applies their updates, and handles one request at a
time.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import TracebackType
from typing import Any

from services.agent import ttrpc
from services.agent.connection import PLUGIN_SERVICE
from services.agent.nri import nri_pb2 as pb
from services.agent.ttrpc import PLUGIN, REQUEST, RESPONSE, RUNTIME, Message
from shared.domain.zone_allocation import RESOURCE_STATUS

ALL_CPUS = "0-7"


class FakeRuntime:
    """A container runtime whose pods and containers survive connections. `sets` has the CPUs by
    container name.
    """

    def __init__(self, folder: Path) -> None:
        self.socket = str(folder / "nri.sock")
        self.cgroups = folder / "cgroups"
        self.cgroups.mkdir()
        (self.cgroups / "cgroup.controllers").write_text("cpuset\n")
        self.pods: dict[str, pb.PodSandbox] = {}
        self.containers: dict[str, pb.Container] = {}
        self.ready = asyncio.Event()
        self.connections = 0
        self.update_answer = pb.Response(payload=pb.UpdateContainersResponse().SerializeToString())
        self._writer: asyncio.StreamWriter | None = None
        self._calls: dict[int, asyncio.Future[pb.Response]] = {}
        self._stream = -1
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> FakeRuntime:
        self._server = await asyncio.start_unix_server(self._serve, self.socket)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()
        self.drop()

    def drop(self) -> None:
        """End the connection, like a runtime that is killed."""
        self.ready.clear()
        if self._writer is not None:
            self._writer.close()

    def cpus(self, name: str) -> str:
        """Return the CPUs in the cgroup of a container."""
        return (self.cgroups / name / "cpuset.cpus.effective").read_text()

    def write(self, name: str, cpus: str, mems: str = "0-1") -> None:
        folder = self.cgroups / name
        folder.mkdir(exist_ok=True)
        (folder / "cpuset.cpus.effective").write_text(cpus)
        (folder / "cpuset.mems.effective").write_text(mems)

    def pod(self, name: str, status: str = "", **annotations: str) -> str:
        """Add a pod; return its sandbox."""
        if status:
            annotations[RESOURCE_STATUS] = status
        self.pods[f"sandbox-{name}"] = pb.PodSandbox(
            id=f"sandbox-{name}", name=name, uid=f"uid-{name}", namespace="default",
            annotations=annotations, linux=pb.LinuxPodSandbox(cgroup_parent=f"/{name}"),
        )  # fmt: skip
        return f"sandbox-{name}"

    def container(self, sandbox: str, name: str) -> pb.Container:
        linux = pb.LinuxContainer(cgroups_path=f"/{name}")
        return pb.Container(
            id=name, pod_sandbox_id=sandbox, name=name, state=pb.CONTAINER_RUNNING, linux=linux
        )

    async def create(self, sandbox: str, name: str) -> pb.Response:
        """Create and start a container, unless the plugin refuses."""
        container = self.container(sandbox, name)
        response = await self.call("CreateContainer", self.request(container))
        if response.status.code:
            return response
        created = pb.CreateContainerResponse.FromString(response.payload)
        cpu = created.adjust.linux.resources.cpu
        self.write(name, cpu.cpus or ALL_CPUS, cpu.mems or "0-1")
        container.linux.resources.cpu.CopyFrom(cpu)
        self.containers[name] = container
        self._apply(created.update)
        await self.call("PostCreateContainer", self.request(container))
        await self.call("PostStartContainer", self.request(container))
        return response

    async def end(self, sandbox: str) -> None:
        """Stop a pod's containers, then the pod."""
        for container in list(self.containers.values()):
            if container.pod_sandbox_id == sandbox:
                del self.containers[container.id]
                response = await self.call("StopContainer", self.request(container))
                self._apply(pb.UpdatesResponse.FromString(response.payload).update)
        event = pb.StateChangeEvent(event=pb.STOP_POD_SANDBOX, pod=self.pods.pop(sandbox))
        await self.call("StateChange", event)

    async def update(self, name: str) -> pb.UpdatesResponse:
        """Change a container's resources as a kubelet does; return what the plugin adds."""
        response = await self.call("UpdateContainer", self.request(self.containers[name]))
        return pb.UpdatesResponse.FromString(response.payload)

    async def call(self, method: str, request: Any, payload: bytes = b"") -> pb.Response:
        self._stream += 2
        stream, future = self._stream, asyncio.get_running_loop().create_future()
        self._calls[stream] = future
        message = pb.Request(
            service=PLUGIN_SERVICE, method=method, payload=payload or request.SerializeToString()
        )
        self._send(Message(PLUGIN, stream, REQUEST, message.SerializeToString()))
        async with asyncio.timeout(5):
            answer: pb.Response = await future
            return answer

    def request(self, container: pb.Container) -> pb.ContainerRequest:
        return pb.ContainerRequest(pod=self.pods[container.pod_sandbox_id], container=container)

    def _apply(self, updates: Any) -> None:
        for update in updates:
            cpu = update.linux.resources.cpu
            if update.container_id in self.containers:
                cpu_limits = self.containers[update.container_id].linux.resources.cpu
                cpu_limits.MergeFrom(cpu)
                self.write(
                    update.container_id, cpu_limits.cpus or ALL_CPUS, cpu_limits.mems or "0-1"
                )

    def _send(self, message: Message) -> None:
        assert self._writer is not None
        self._writer.write(ttrpc.encode(message))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer, decoder = writer, ttrpc.Decoder()
        self.connections += 1
        tasks = []
        while data := await reader.read(1 << 16):
            for message in decoder.feed(data):
                if message.kind == RESPONSE:
                    answer = pb.Response.FromString(message.data)
                    self._calls.pop(message.stream).set_result(answer)
                elif (task := self._answer(message)) is not None:
                    tasks.append(task)
        writer.close()

    def _answer(self, message: Message) -> asyncio.Task[None] | None:
        request = pb.Request.FromString(message.data)
        answer, task = pb.Response(), None
        if request.method == "RegisterPlugin":
            task = asyncio.create_task(self._synchronize())
        else:
            updates = pb.UpdateContainersRequest.FromString(request.payload).update
            answer = self.update_answer
            if not answer.status.code:
                self._apply(updates)
        self._send(Message(RUNTIME, message.stream, RESPONSE, answer.SerializeToString()))
        return task

    async def _synchronize(self) -> None:
        """Configure and synchronize, the pods in a first part and the containers in a second."""
        await self.call("Configure", pb.ConfigureRequest(runtime_name="fake"))
        first = pb.SynchronizeRequest(pods=self.pods.values(), more=True)
        assert pb.SynchronizeResponse.FromString(
            (await self.call("Synchronize", first)).payload
        ).more
        rest = pb.SynchronizeRequest(containers=self.containers.values())
        answer = await self.call("Synchronize", rest)
        self._apply(pb.SynchronizeResponse.FromString(answer.payload).update)
        self.ready.set()
