"""Runs all simulated kubelets of a process: takes pods from the cluster's store, posts statuses,
ends pods, and serves the sockets.

One loop serves all nodes: changes of pods, actions by real time (steps of an admission) and by
virtual time (lifetimes). This module does not know HTTP, the player, or schedulers.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec
import structlog

from services.simulator import kubelet, kubelet_files, machine_files, pod_status
from services.simulator.agenda import Action, Agenda
from services.simulator.clock import VirtualClock
from services.simulator.cluster import GPU, SimulatedNode
from services.simulator.cluster_port import Change, ClusterPort, Json
from services.simulator.kubelet_agent import Delays, KubeletAgent
from services.simulator.machine_files import NodeFiles
from services.simulator.node_agent import NodeAgent
from services.simulator.node_object import device_object, node_object, node_status
from services.simulator.podresources_server import PodresourcesServer
from services.simulator.workload import LIFETIME_ANNOTATION
from shared.domain.manifest import ManifestError, pod_from_manifest
from shared.domain.pod import Pod
from shared.kubelet.machine import KubeletState
from shared.runtime.waiting import set_within

log = structlog.get_logger()
# The longest turn of work in the event loop. gRPC's server handles one event after each turn, so
# with longer turns kubelets on a busy machine answered no request while pods arrived.
TURN_S = 0.002
_ENDED = ("Failed", "Succeeded")
_UNTAINTED = {"spec": {"taints": None}}


class Rejection(msgspec.Struct, frozen=True):
    """A pod that its kubelet refused."""

    pod: str
    node: str
    reason: str
    message: str


class KubeletRunner:
    """The kubelets of `nodes` in a cluster. `rejections` lists every refusal since the start."""

    def __init__(
        self,
        cluster: ClusterPort,
        nodes: tuple[SimulatedNode, ...],
        files: tuple[NodeFiles, ...],
        clock: VirtualClock,
        delays: Delays | None = None,
    ) -> None:
        self.rejections: list[Rejection] = []
        self._cluster = cluster
        self._nodes = dict(
            zip((node.name for node in nodes), zip(nodes, files, strict=True), strict=True)
        )
        self._clock = clock
        self._delays = delays or Delays()
        self._agents: dict[str, KubeletAgent] = {}
        self._servers: dict[str, PodresourcesServer] = {}
        self._enforcers: dict[str, NodeAgent] = {}
        self._inbox: dict[str, tuple[str, str, str]] = {}
        self._woken = asyncio.Event()
        self._real, self._virtual = Agenda(), Agenda()
        self._unlisten: list[Callable[[], None]] = []
        self._addresses = 0

    async def start(self) -> None:
        """Write the nodes' files, register Node objects, resume pods, and listen on the sockets.
        Raises StartError and OSError.
        """
        self._unlisten.append(self._cluster.listen("pods", self._on_change))
        for node, files in self._nodes.values():
            self._start_node(node, files)
        for entry in self._cluster.list("pods"):
            self._note(entry.obj)
        for name, agent in self._agents.items():
            server = PodresourcesServer(self._nodes[name][1].socket, agent)
            await server.start()
            self._servers[name] = server

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            self._work()
            self._woken.clear()
            await set_within(self._woken, self._pause_s())

    async def stop(self) -> None:
        """Stop serving and save every kubelet's state."""
        for stop in self._unlisten:
            stop()
        await asyncio.gather(*(server.stop() for server in self._servers.values()))
        for enforcer in self._enforcers.values():
            enforcer.close()

    def agent(self, node: str) -> KubeletAgent:
        """Return the kubelet of a node. Raises KeyError if the node is not simulated here."""
        return self._agents[node]

    async def restart_node(self, node: str) -> None:
        """Restart one kubelet on its checkpoints; its socket is replaced."""
        await self._servers[node].stop()
        self._start_node(*self._nodes[node])
        self._servers[node] = PodresourcesServer(self._nodes[node][1].socket, self._agents[node])
        await self._servers[node].start()
        for entry in self._cluster.list("pods", field_selector=f"spec.nodeName={node}"):
            self._note(entry.obj)

    def _start_node(self, node: SimulatedNode, files: NodeFiles) -> None:
        machine_files.write(node, files)
        fresh = kubelet.start(node)
        stored, reason = kubelet_files.load(files.kubelet_dir, fresh.state)
        if reason:
            log.warning("kubelet state refused, starting empty", node=node.name, reason=reason)
        pods = self._admitted_pods(node.name, stored)
        refused: list[tuple[str, Any]] = []
        if pods:
            fresh, refused = kubelet.resume(
                fresh, stored or fresh.state, [pod for pod, _running in pods]
            )
        agent = KubeletAgent(
            fresh,
            files.kubelet_dir,
            self._delays,
            self._real,
            time.monotonic,
            _Posts(self, node.name),
            self._enforcer(node, files),
        )
        self._agents[node.name] = agent
        self._register(node, files)
        verdicts = dict(refused)
        for pod, running in pods:
            if pod.uid in verdicts:
                self.refused(node.name, pod, verdicts[pod.uid].reason, verdicts[pod.uid].message)
            elif running:
                self._start_lifetime(node.name, pod)
            else:
                self.started(node.name, pod)

    def _enforcer(self, node: SimulatedNode, files: NodeFiles) -> NodeAgent | None:
        if files.agent_dir is None:
            return None
        if node.name in self._enforcers:
            self._enforcers[node.name].close()
        enforcer = self._enforcers[node.name] = NodeAgent(node, files.agent_dir)
        return enforcer

    def _admitted_pods(self, node: str, stored: KubeletState | None) -> list[tuple[Pod, bool]]:
        """Return the pods that this kubelet had admitted when it stopped, oldest first, and whether
        each is known to run.

        A pod in the checkpoints keeps its place, as on a kubelet, even if its last status was not
        posted.
        """
        holder_uids = kubelet.holders(stored) if stored is not None else frozenset()
        entries = self._cluster.list("pods", field_selector=f"spec.nodeName={node}")
        pods_on_node = [(entry.obj, entry.obj["status"].get("phase")) for entry in entries]
        kept = [
            obj
            for obj, phase in pods_on_node
            if phase == "Running" or (phase not in _ENDED and obj["metadata"]["uid"] in holder_uids)
        ]
        kept.sort(
            key=lambda obj: (obj["metadata"].get("creationTimestamp", ""), obj["metadata"]["uid"])
        )
        read = [(pod_from_manifest(obj), obj["status"].get("phase") == "Running") for obj in kept]
        return [(pod, running) for pod, running in read if isinstance(pod, Pod)]

    def _register(self, node: SimulatedNode, files: NodeFiles) -> None:
        self._addresses += 1
        address = f"10.0.{self._addresses // 250}.{self._addresses % 250 + 1}"
        boot_id = machine_files.boot_id(node.name, str(files.sysfs))
        if GPU in node.devices and self._cluster.get("devices", node.name) is None:
            self._cluster.create("devices", device_object(node))
        if self._cluster.get("nodes", node.name) is None:
            self._cluster.create("nodes", node_object(node, boot_id, address, now_text()))
        else:
            self._cluster.replace_status(
                "nodes", node.name, "", node_status(node, boot_id, address, now_text())
            )
        self._cluster.patch("nodes", node.name, "", _UNTAINTED, form="merge")

    def _on_change(self, change: Change) -> None:
        self._note(change.entry.obj)

    def _note(self, obj: Json) -> None:
        """Note a changed pod of these nodes. Its state is read later, in its turn."""
        node = obj["spec"].get("nodeName")
        if node not in self._agents:
            return
        metadata = obj["metadata"]
        self._inbox[metadata["uid"]] = (node, metadata["namespace"], metadata["name"])
        self._woken.set()

    def _work(self) -> None:
        """Process received changes and due actions in turns of bounded length."""
        end_s, more = time.monotonic() + TURN_S, True
        while more and time.monotonic() < end_s:
            due = (
                self._next_change(),
                self._real.next_due(time.monotonic()),
                self._virtual.next_due(self._clock.now()),
            )
            more = any(due)
            for action in filter(None, due):
                action()

    def _next_change(self) -> Action | None:
        uid = next(iter(self._inbox), None)
        return None if uid is None else partial(self._pod_changed, uid, *self._inbox.pop(uid))

    def _pause_s(self) -> float:
        if self._inbox:
            return 0.0
        pause = 0.25
        if self._real.next_at is not None:
            pause = min(pause, self._real.next_at - time.monotonic())
        if self._virtual.next_at is not None:
            pause = min(pause, self._clock.real_until(self._virtual.next_at))
        return max(0.001, pause) if pause > 0 else 0.0

    def _pod_changed(self, uid: str, node: str, namespace: str, name: str) -> None:
        agent = self._agents[node]
        entry = self._cluster.get("pods", name, namespace)
        if entry is None or entry.obj["metadata"]["uid"] != uid:
            agent.end(uid)
            return
        obj = entry.obj
        if obj["status"].get("phase") in _ENDED:
            agent.end(uid)
        elif obj["metadata"].get("deletionTimestamp"):
            self._terminate(agent, obj)
        elif not agent.knows(uid):
            self._assign(agent, node, obj)

    def _terminate(self, agent: KubeletAgent, obj: Json) -> None:
        uid = obj["metadata"]["uid"]
        if agent.knows(uid):
            agent.terminate(uid)
        else:
            self._finish_deletion(obj)

    def _assign(self, agent: KubeletAgent, node: str, obj: Json) -> None:
        pod = pod_from_manifest(obj)
        if isinstance(pod, ManifestError):
            log.warning(
                "pod cannot be read", node=node, pod=obj["metadata"]["name"], error=str(pod)
            )
            self._refuse(node, obj, "UnexpectedAdmissionError", str(pod))
        else:
            agent.assign(pod)

    def _current(self, pod: Pod) -> Json | None:
        entry = self._cluster.get("pods", pod.name, pod.namespace)
        return entry.obj if entry is not None and entry.obj["metadata"]["uid"] == pod.uid else None

    def started(self, node: str, pod: Pod) -> None:
        """Post Running, and let the pod's lifetime begin."""
        obj = self._current(pod)
        if obj is None or obj["metadata"].get("deletionTimestamp"):
            return
        self._addresses += 1
        number = self._addresses
        address = f"10.{64 + number // 65536 % 64}.{number // 256 % 256}.{number % 256}"
        host = self._cluster_address(node)
        status = pod_status.running(obj, now_text(), host, address)
        self._cluster.replace_status("pods", pod.name, pod.namespace, status, pod.uid)
        self._start_lifetime(node, pod)

    def refused(self, node: str, pod: Pod, reason: str, message: str) -> None:
        """Post Failed with the kubelet's reason, and the Warning event."""
        obj = self._current(pod)
        if obj is not None:
            self._refuse(node, obj, reason, message)

    def stopped(self, pod: Pod) -> None:
        """Finish a deletion, because the containers have ended."""
        obj = self._current(pod)
        if obj is not None:
            self._finish_deletion(obj)

    def _finish_deletion(self, obj: Json) -> None:
        """Post how the pod ended, and delete the object, which a finalizer may keep."""
        metadata, phase = obj["metadata"], obj["status"].get("phase")
        namespace, name, uid = metadata["namespace"], metadata["name"], metadata["uid"]
        if phase not in _ENDED:
            ran = phase == "Running"
            status = pod_status.succeeded(obj, now_text()) if ran else pod_status.never_started(obj)
            self._cluster.replace_status("pods", name, namespace, status, uid)
        self._cluster.delete("pods", name, namespace, grace_s=0, uid=uid)

    def _refuse(self, node: str, obj: Json, reason: str, message: str) -> None:
        metadata = obj["metadata"]
        namespace, name, timestamp = metadata["namespace"], metadata["name"], now_text()
        self.rejections.append(Rejection(f"{namespace}/{name}", node, reason, message))
        status = pod_status.refused(obj, reason, message, timestamp)
        self._cluster.replace_status("pods", name, namespace, status, metadata["uid"])
        self._cluster.create(
            "events", pod_status.refusal_event(obj, node, reason, message, timestamp), namespace
        )

    def _start_lifetime(self, node: str, pod: Pod) -> None:
        lifetime = _lifetime_s(pod)
        if lifetime is not None:
            self._virtual.add(self._clock.now() + lifetime, partial(self._finish, node, pod))

    def _finish(self, node: str, pod: Pod) -> None:
        """End the pod with success after its lifetime.

        The end is posted before its resources are free: a kubelet killed in between sees an ended
        pod, and not a running pod that holds nothing.
        """
        agent = self._agents[node]
        obj = self._current(pod)
        if obj is None or obj["metadata"].get("deletionTimestamp") or not agent.knows(pod.uid):
            return
        status = pod_status.succeeded(obj, now_text())
        self._cluster.replace_status("pods", pod.name, pod.namespace, status, pod.uid)
        agent.end(pod.uid)

    def _cluster_address(self, node: str) -> str:
        entry = self._cluster.get("nodes", node)
        addresses = entry.obj["status"].get("addresses", []) if entry else []
        return next(
            (address["address"] for address in addresses if address["type"] == "InternalIP"),
            "10.0.0.1",
        )


class _Posts:
    """The posts of one node's kubelet."""

    def __init__(self, runner: KubeletRunner, node: str) -> None:
        self._runner = runner
        self._node = node

    def started(self, pod: Pod) -> None:
        self._runner.started(self._node, pod)

    def refused(self, pod: Pod, reason: str, message: str) -> None:
        self._runner.refused(self._node, pod, reason, message)

    def stopped(self, pod: Pod) -> None:
        self._runner.stopped(pod)


def now_text() -> str:
    """Return the time of day as the API writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _lifetime_s(pod: Pod) -> float | None:
    """Return how many virtual seconds the pod runs; None without limit (no annotation, or not a
    number).
    """
    try:
        lifetime = float(pod.annotations[LIFETIME_ANNOTATION])
    except (KeyError, ValueError):
        return None
    return lifetime if 0 <= lifetime < float("inf") else None
