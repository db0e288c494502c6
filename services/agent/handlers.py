"""Answers the runtime's requests, and keeps what containers have as it should be.

A request is decoded, the core decides, and the decision is encoded. `Plugin` is one connection's
side of this, so its state begins with Synchronize.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping

import msgspec

from services.agent import core, wishes
from services.agent.connection import (
    FAILED_PRECONDITION,
    UNIMPLEMENTED,
    UNKNOWN,
    CallError,
    Connection,
)
from services.agent.core import Container, Cpuset, Machine, Pod, Refusal, State
from services.agent.node import gpu_files
from services.agent.nri import nri_pb2 as pb
from services.agent.settings import AgentSettings
from services.agent.wishes import NOTHING
from shared.kubelet.cpuset import format_cpus, parse_cpus
from shared.telemetry import agent_names as names
from shared.telemetry import logs
from shared.telemetry.instruments import count, observe, set_gauge

NAME = "topolog-agent"
EVENTS = (
    pb.STOP_POD_SANDBOX,
    pb.REMOVE_POD_SANDBOX,
    pb.CREATE_CONTAINER,
    pb.POST_CREATE_CONTAINER,
    pb.POST_START_CONTAINER,
    pb.UPDATE_CONTAINER,
    pb.STOP_CONTAINER,
    pb.REMOVE_CONTAINER,
)
CALL_TIMEOUT_S = 10.0


class Plugin:
    """The plugin of one connection. `changed` is set by every request that changes the state."""

    def __init__(self, settings: AgentSettings, machine: Machine) -> None:
        self.state = State(machine)
        self.synchronized = asyncio.Event()
        self.changed = asyncio.Event()
        self._settings = settings
        self._log = logs.get(NAME)
        self._parts: list[pb.SynchronizeRequest] = []
        self._methods: dict[str, Callable[[bytes], pb.Empty | _Response]] = {
            "Configure": self._configure,
            "Synchronize": self._synchronize,
            "Shutdown": lambda _: pb.Empty(),
            "StateChange": self._state_change,
            "CreateContainer": self._create,
            "PostCreateContainer": self._event(pb.POST_CREATE_CONTAINER),
            "PostStartContainer": self._event(pb.POST_START_CONTAINER),
            "UpdateContainer": self._update,
            "StopContainer": self._stop,
            "RemoveContainer": self._event(pb.REMOVE_CONTAINER),
            "StopPodSandbox": self._event(pb.STOP_POD_SANDBOX),
            "RemovePodSandbox": self._event(pb.REMOVE_POD_SANDBOX),
        }

    def answer(self, method: str, payload: bytes) -> bytes:
        """Return the payload of the answer. Raises CallError."""
        handle = self._methods.get(method)
        if handle is None:
            raise CallError(UNIMPLEMENTED, f"no method {method}")
        started = time.monotonic()
        try:
            return handle(payload).SerializeToString()
        finally:
            observe(names.REQUEST_LATENCY, time.monotonic() - started, method=method)
            self.changed.set()

    def settings_due(self) -> dict[str, Cpuset]:
        """Return the settings that the runtime must apply, and record that it was asked."""
        due = core.updates(self.state)
        self.state = core.sent(self.state, due)
        return due

    def _configure(self, payload: bytes) -> pb.ConfigureResponse:
        return pb.ConfigureResponse(events=sum(1 << event - 1 for event in EVENTS))

    def _synchronize(self, payload: bytes) -> pb.SynchronizeResponse:
        request = pb.SynchronizeRequest.FromString(payload)
        self._parts.append(request)
        if request.more:
            return pb.SynchronizeResponse(more=True)
        pods = [_pod(pod) for part in self._parts for pod in part.pods]
        listed = [entry for part in self._parts for entry in part.containers]
        self._parts = []
        live = (entry for entry in listed if entry.state != pb.CONTAINER_STOPPED)
        containers = [_container(c) for c in sorted(live, key=lambda c: (c.created_at, c.id))]
        read = [self._with_wish(pod, annotations) for pod, annotations in pods]
        refused = [(pod, problem) for pod, problem in read if problem is not None]
        self.state, unkept = core.synchronized(
            self.state.machine, [pod for pod, _ in read], containers
        )
        running = {pod.sandbox for pod in self.state.pods.values()}
        for pod, problem in (*refused, *unkept):
            if pod.sandbox in running:
                self._report(pod, problem, "ignored")
        self.synchronized.set()
        return pb.SynchronizeResponse(update=self._updates())

    def _create(self, payload: bytes) -> pb.CreateContainerResponse:
        request = pb.ContainerRequest.FromString(payload)
        pod, problem = self._with_wish(*_pod(request.pod))
        settings, gpus, minors = self._settings, "", tuple[int, ...]()
        try:
            if settings.gpu_env or settings.gpu_devices:
                gpus, minors = wishes.gpus(request.pod.annotations)
        except ValueError as error:
            problem = problem or Refusal("unreadable", str(error))
        problem = problem or core.refusal(self.state, pod)
        if problem is not None:
            refuses = self._settings.unkept == "refuse"
            self._report(pod, problem, "refused" if refuses else "ignored")
            if refuses:
                raise CallError(FAILED_PRECONDITION, f"{NAME}: {problem.text}")
            pod = msgspec.structs.replace(pod, wish=NOTHING)
        container = msgspec.structs.replace(_container(request.container), is_created=False)
        self.state = core.creating(self.state, pod, container)
        given = self.state.containers[container.id].given or Cpuset()
        adjust = pb.ContainerAdjustment()
        if given != Cpuset():
            adjust.linux.resources.CopyFrom(_resources(given))
        if gpus and settings.gpu_env:
            adjust.env.add(key=settings.gpu_env, value=gpus)
        if minors and settings.gpu_devices:
            for path, major, minor in gpu_files(settings.host_proc, minors):
                adjust.linux.devices.add(path=path, type="c", major=major, minor=minor)
        is_adjusted = adjust != pb.ContainerAdjustment()
        return pb.CreateContainerResponse(
            adjust=adjust if is_adjusted else None, update=self._updates()
        )

    def _update(self, payload: bytes) -> pb.UpdatesResponse:
        """Answer an update of the kubelet with the setting that the container has."""
        container = pb.ContainerRequest.FromString(payload).container.id
        updates = self._updates()
        entry = self.state.containers.get(container)
        if entry is not None and entry.given is not None and entry.given != Cpuset():
            updates = [update for update in updates if update.container_id != container]
            updates.append(_container_update(container, entry.given))
        return pb.UpdatesResponse(update=updates)

    def _stop(self, payload: bytes) -> pb.UpdatesResponse:
        self.state = core.stopped(self.state, pb.ContainerRequest.FromString(payload).container.id)
        return pb.UpdatesResponse(update=self._updates())

    def _event(self, event: pb.Event) -> Callable[[bytes], pb.Empty]:
        def handle(payload: bytes) -> pb.Empty:
            request = pb.ContainerRequest.FromString(payload)
            self._happened(event, request.pod.id, request.container)
            return pb.Empty()

        return handle

    def _state_change(self, payload: bytes) -> pb.Empty:
        change = pb.StateChangeEvent.FromString(payload)
        self._happened(change.event, change.pod.id, change.container)
        return pb.Empty()

    def _happened(self, event: int, sandbox: str, container: pb.Container) -> None:
        if event in (pb.POST_CREATE_CONTAINER, pb.POST_START_CONTAINER):
            self.state = core.created(self.state, container.id, container.linux.cgroups_path)
        elif event == pb.REMOVE_CONTAINER:
            self.state = core.stopped(self.state, container.id)
        elif event in (pb.STOP_POD_SANDBOX, pb.REMOVE_POD_SANDBOX):
            self.state = core.ended(self.state, sandbox)

    def _with_wish(
        self, pod: Pod, metadata: tuple[Mapping[str, str], Mapping[str, str]]
    ) -> tuple[Pod, Refusal | None]:
        try:
            wish = wishes.read(*metadata, self._settings.memory_policy)
        except ValueError as error:
            return pod, Refusal("unreadable", str(error))
        return msgspec.structs.replace(pod, wish=wish), None

    def _updates(self) -> list[pb.ContainerUpdate]:
        due = self.settings_due()
        count(names.UPDATES, len(due))
        return [_container_update(container, cpuset) for container, cpuset in due.items()]

    def _report(self, pod: Pod, problem: Refusal, result: str) -> None:
        count(names.REFUSED, reason=problem.reason, result=result)
        self._log.warning(
            names.ANNOTATION_REFUSED,
            pod=f"{pod.namespace}/{pod.name}",
            problem=problem.text,
            result=result,
        )


_Response = (
    pb.ConfigureResponse | pb.SynchronizeResponse | pb.CreateContainerResponse | pb.UpdatesResponse
)


async def register(connection: Connection, index: str) -> None:
    """Register as a plugin. Raises CallError, OSError or TimeoutError."""
    request = pb.RegisterPluginRequest(plugin_name=NAME, plugin_idx=index)
    await connection.call("RegisterPlugin", request.SerializeToString(), CALL_TIMEOUT_S)


async def send_due(connection: Connection, plugin: Plugin) -> str:
    """Ask the runtime to apply the settings that are due. Return the failure, "" for none.

    The runtime answers requests one after the other, and may ask about a container during the call.
    Whether that answer or this call counts is unknown, so such containers are set once more.
    """
    due = plugin.settings_due()
    if not due:
        return ""
    updates = [_container_update(container, cpuset) for container, cpuset in due.items()]
    request = pb.UpdateContainersRequest(update=updates).SerializeToString()
    count(names.UPDATES, len(due))
    try:
        await connection.call("UpdateContainers", request, CALL_TIMEOUT_S)
    except CallError as error:
        # An update that the runtime cannot apply is an error without a code (ttrpc).
        if error.code != UNKNOWN:
            raise
        return str(error)
    finally:
        plugin.state = core.overtaken(plugin.state, due)
    return ""


def count_containers(state: State) -> None:
    """Set the metric of containers by their CPUs."""
    kinds = {"own": 0, "shared": 0, "any": 0}
    for container in state.containers.values():
        wish = state.pods[container.sandbox].wish
        zoned = "shared" if wish.zones else "any"
        kinds["own" if wish.cpus else zoned] += 1
    for kind, number in kinds.items():
        set_gauge(names.CONTAINERS, number, cpus=kind)


def _pod(pod: pb.PodSandbox) -> tuple[Pod, tuple[Mapping[str, str], Mapping[str, str]]]:
    parent = pod.linux.cgroup_parent
    made = Pod(pod.id, pod.uid, pod.namespace, pod.name, cgroup=parent)
    return made, (pod.annotations, pod.labels)


def _container(container: pb.Container) -> Container:
    cpu = container.linux.resources.cpu
    try:
        given = Cpuset(parse_cpus(cpu.cpus), parse_cpus(cpu.mems))
    except ValueError:
        given = None
    return Container(
        container.id,
        container.pod_sandbox_id,
        container.name,
        container.linux.cgroups_path,
        given,
    )


def _resources(cpuset: Cpuset) -> pb.LinuxResources:
    cpu = pb.LinuxCPU(cpus=format_cpus(cpuset.cpus), mems=format_cpus(cpuset.mems))
    return pb.LinuxResources(cpu=cpu)


def _container_update(container: str, cpuset: Cpuset) -> pb.ContainerUpdate:
    linux = pb.LinuxContainerUpdate(resources=_resources(cpuset))
    return pb.ContainerUpdate(container_id=container, linux=linux)
