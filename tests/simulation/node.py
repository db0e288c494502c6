"""One node of the simulation: its kubelet in steps, and the inputs of its exporter.

The kubelet learns of pods late and in any order, lists them before it admits them, admits one at a
time in visible steps, and posts statuses late. Must not know the log or a pod's binder.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from services.exporter import core as exporter
from services.exporter.reserved import Reserved
from services.exporter.statement import NOBODY
from services.scheduler.snapshot.owners import is_owned_resource
from services.scheduler.snapshot.topology_policy import POLICY_LABEL
from services.simulator import kubelet, reading
from services.simulator.cluster import KUBELET, NodeShape, Policies, SimulatedNode, lay_out
from services.simulator.kubelet import KubeletNode, Trial
from services.simulator.node_agent import NodeAgent
from shared.domain.effective import effective_request
from shared.domain.manifest import pod_from_manifest
from shared.domain.pod import Pod
from shared.domain.report import Freshness, Report, ZonedAmount
from shared.domain.resources import MEMORY
from shared.domain.statement import TOPOLOG, Statement
from shared.kubelet.admission import Admission, start_containers
from shared.kubelet.config import KubeletConfig
from shared.kubelet.device_state import DevicePool
from shared.kubelet.fingerprint import ALL, EXCLUSIVE
from shared.kubelet.machine import KubeletState
from tests.simulation.cluster import Api
from tests.simulation.counterfactual import Past
from tests.simulation.log import SimClock
from tests.simulation.profile import policies

LABELS = {
    "single-numa-node": "SingleNUMANode",
    "restricted": "Restricted",
    "best-effort": "BestEffort",
}


Add = Callable[[str, str, Callable[[], str | None]], None]


class Changed(msgspec.Struct, frozen=True):
    """A change, its time, and the API server's version that shows it."""

    at_ms: int
    version: int
    what: str


class SimNode:
    """`changes` is everything that may make the kubelet refuse what was promised; `arrived` and
    `ended` are by uid, in ms: when the kubelet received a pod, and when it released the pod's
    resources; `admitted_ms` when it had admitted one. `met` are the pods that it held when the
    newest admission began, of which some may be gone at its end. `readmitted` are pods with
    ordinary init containers that a restarted kubelet admitted again: it allocates for the init
    containers, which will not run, once more.
    """

    def __init__(
        self, shape: SimulatedNode, listing_mode: str, api: Api, clock: SimClock, rng: random.Random
    ) -> None:
        self.shape, self.mode = shape, listing_mode
        self.api, self.clock, self.rng = api, clock, rng
        self.kubelet = kubelet.start(shape)
        self.down = False
        self.changes: list[Changed] = []
        self.past = Past()
        self.readmitted: set[str] = set()
        self.arrived: dict[str, int] = {}
        self.admitted_ms: dict[str, int] = {}
        self.ended: dict[str, int] = {}
        self.met: set[str] = set()
        self.refused: Callable[[SimNode, Pod, Admission, bool], None] = lambda *_: None
        self.admitted: Callable[[SimNode], None] = lambda _: None
        self._boots = 1
        self.booted_ms: dict[str, int] = {self.boot_id: clock.now_ms}
        self._trial: Trial | None = None
        self._steps: list[KubeletState] = []
        self._queue: list[str] = []
        self._over: set[str] = set()
        self._posts: list[tuple[str, str, str, str, int]] = []
        self._sick: set[tuple[str, str]] = set()
        self._begun: exporter.Scan | None = None
        self.unkept: Callable[[SimNode, Pod, str], None] = lambda *_: None
        self._install()
        self._register()

    @property
    def name(self) -> str:
        return self.shape.name

    @property
    def boot_id(self) -> str:
        return f"boot-{self.name}-{self._boots}"

    @property
    def begun(self) -> bool:
        """Whether the exporter is within a scan."""
        return self._begun is not None

    def _install(self) -> None:
        """Start an agent if Topolog chooses the zones, and label the node with the policy."""
        self.agent: NodeAgent | None = None
        self.owned_policy = self.shape.owned_policy
        if self.owned_policy:
            self.shape = msgspec.structs.replace(self.shape, labels=_labels(self.owned_policy))
            self.agent = NodeAgent(self.shape, None)

    # -- what may happen
    # ----------------------------------------------------------------------------------------------

    def offer(self, add: Add) -> None:
        """Everything that this node could do next."""
        if self.down:
            if not self._bound_here():
                add("rejoin", self.name, self.rejoin)
            return
        self._offer_hearing(add)
        if self._trial is None and self._queue:
            add("begin", f"{self.name} {self._queue[0][:6]}", self._begin)
        if self._trial is not None:
            if self._steps:
                add("show", f"{self.name} {self._trial.uid[:6]}", self._show)
            add("settle", f"{self.name} {self._trial.uid[:6]}", self._settle)
        if self._posts:
            add("post", f"{self.name} {self._posts[0][0][:6]} {self._posts[0][1]}", self._post)
        for uid in self.running():
            add("finish", f"{self.name} {uid[:6]}", lambda uid=uid: self.finish(uid))  # type: ignore[misc]
        self._offer_faults(add)

    def _offer_hearing(self, add: Add) -> None:
        bound_here = {pod["metadata"]["uid"]: pod for pod in self._bound_here()}
        for uid, pod in bound_here.items():
            if pod["metadata"].get("deletionTimestamp"):
                add("hear", f"{self.name} end of {uid[:6]}", lambda uid=uid: self._terminate(uid))  # type: ignore[misc]
            elif uid not in self.kubelet.pods and uid not in self._over:
                add("hear", f"{self.name} {uid[:6]}", lambda pod=pod: self._assign(pod))  # type: ignore[misc]
        for uid in self.kubelet.pods:
            if uid not in bound_here:
                add("hear", f"{self.name} {uid[:6]} is gone", lambda uid=uid: self._let_go(uid))  # type: ignore[misc]

    def _offer_faults(self, add: Add) -> None:
        add("restart", self.name, lambda: self.restart("restart"))
        add("reboot", self.name, self.reboot)
        add("policy", self.name, self._new_policy)
        if self.owned_policy and self._trial is None:
            add("owner", self.name, self._new_owner)
        add("lose state", self.name, lambda: self.restart("lost state"))
        add("remove node", self.name, self.remove)
        if self._trial is None:
            for resource, devices in sorted(self.kubelet.state.devices.registered.items()):
                if any((resource, device) not in self._sick for device in devices):
                    add("vanish", f"{self.name} {resource}", lambda r=resource: self._vanish(r))  # type: ignore[misc]
                for device in sorted(devices):
                    sick = (resource, device) in self._sick
                    kind = "heal" if sick else "lose device"
                    add(kind, f"{self.name} {device}", partial(self._turn, resource, device))

    def _bound_here(self) -> list[dict[str, Any]]:
        return [pod for pod in self.api.live() if pod["spec"].get("nodeName") == self.name]

    # -- pods
    # ----------------------------------------------------------------------------------------------

    def running(self) -> list[str]:
        """Uids of the pods that this kubelet runs."""
        return [uid for uid, known in self.kubelet.pods.items() if known.phase == "running"]

    def busy(self) -> bool:
        """Whether an action is under way."""
        return bool(self._queue or self._trial or self._posts)

    def _assign(self, obj: dict[str, Any]) -> str:
        pod = pod_from_manifest(obj)
        assert isinstance(pod, Pod), pod
        self.arrived.setdefault(pod.uid, self.clock.now_ms)
        self.kubelet = kubelet.assign(self.kubelet, pod)
        self._queue.append(pod.uid)
        return "listed"

    def _terminate(self, uid: str) -> str:
        obj = self.api.by_uid(uid)
        self._let_go(uid)
        if obj is not None:
            self.api.delete(obj["metadata"]["name"], uid, grace_s=0)
        return "terminated"

    def _let_go(self, uid: str) -> str:
        admitted = self.kubelet.pods.get(uid)
        if admitted is not None and admitted.phase != "waiting":
            self.ended[uid] = self.clock.now_ms
            self.past.note("end", self.kubelet, admitted.pod)
        if self.agent is not None:
            self.agent.end(uid)
        self._over.add(uid)
        self._queue = [other for other in self._queue if other != uid]
        self.kubelet = kubelet.end(self.kubelet, uid)
        return "ended"

    def finish(self, uid: str) -> str:
        """End a pod whose lifetime is over."""
        self._let_go(uid)
        self._posts.append((uid, "Succeeded", "", "", self.clock.now_ms))
        return "succeeded"

    def _begin(self) -> str:
        uid = self._queue.pop(0)
        self.past.note("admit", self.kubelet, self.kubelet.pods[uid].pod)
        self.met = set(self.kubelet.pods)
        self.kubelet, self._trial = kubelet.begin(self.kubelet, uid)
        self._steps = list(self._trial.steps[:-1])
        return "admitting"

    def _show(self) -> str:
        self.kubelet = kubelet.show(self.kubelet, self._steps.pop(0))
        return "one more step visible"

    def _settle(self) -> str:
        trial = self._trial
        assert trial is not None
        self._trial, self._steps = None, []
        admitted = self.kubelet.pods.get(trial.uid)
        self.kubelet = kubelet.conclude(self.kubelet, kubelet.rebase(self.kubelet, trial))
        if admitted is None:
            return "gone meanwhile"
        if trial.verdict.admitted:
            self.admitted_ms[trial.uid] = self.clock.now_ms
            if self.agent is not None and (problem := self.agent.create(admitted.pod)):
                self.unkept(self, admitted.pod, problem)
            self._posts.append((trial.uid, "Running", "", "", self.clock.now_ms))
            self.admitted(self)
            return "admitted"
        return self._refuse(admitted.pod, trial.verdict, False)

    def _refuse(self, pod: Pod, verdict: Admission, again: bool) -> str:
        self._over.add(pod.uid)
        self._posts.append((pod.uid, "Failed", verdict.reason, verdict.message, self.clock.now_ms))
        self.refused(self, pod, verdict, again)
        return f"REFUSED {verdict.reason}"

    def _post(self) -> str:
        uid, phase, reason, message, at_ms = self._posts.pop(0)
        self.api.post(uid, phase, at_ms, reason, message)
        return reason or phase

    # -- the node itself
    # ----------------------------------------------------------------------------------------------

    def restart(self, what: str) -> str:
        """Restart the kubelet on its checkpoints, or without them (`lost state`). A pod that was
        being admitted begins again.
        """
        self._changed(what)
        self.met.clear()
        pods = list(self.kubelet.pods.items())
        running = [known.pod for _, known in pods if known.phase == "running"]
        waiting = [known.pod for _, known in pods if known.phase != "running"]
        fresh, old = kubelet.start(self.shape), self.kubelet.state
        devices = msgspec.structs.replace(fresh.state.devices, registered=old.devices.registered)
        if what == "lost state":
            state = KubeletState(fresh.state.kubelet, fresh.state.cpu, fresh.state.memory, devices)
        else:
            devices = msgspec.structs.replace(
                devices, held=old.devices.held, in_use=old.devices.in_use
            )
            state = KubeletState(fresh.state.kubelet, old.cpu, old.memory, devices)
        again, refused = kubelet.resume(fresh, state, running)
        if what == "reboot":
            again = _started(again)
        else:
            self.readmitted.update(
                pod.uid for pod in running if any(each.kind == "init" for each in pod.containers)
            )
        for pod in waiting:
            again = kubelet.assign(again, pod)
        self.kubelet, self._trial, self._steps = again, None, []
        self._queue = [pod.uid for pod in waiting]
        by_uid = {pod.uid: pod for pod in running}
        for uid, verdict in refused:
            self.ended[uid] = self.clock.now_ms
            self._refuse(by_uid[uid], verdict, True)
        return f"{len(running)} readmitted, {len(refused)} refused"

    def reboot(self) -> str:
        """Reboot, with the same pods and checkpoints."""
        self._boot()
        self._register()
        return self.restart("reboot")

    def _boot(self) -> None:
        self._boots += 1
        self.booted_ms[self.boot_id] = self.clock.now_ms

    def _new_policy(self) -> str:
        """Restart the kubelet with another configuration, within the boot."""
        chosen = policies(self.rng)
        if self.owned_policy:
            return self.restart("policy")
        config = msgspec.structs.replace(
            self.shape.kubelet,
            topology_policy=chosen.topology_policy,
            topology_scope=chosen.topology_scope,
        )
        self.shape = msgspec.structs.replace(self.shape, kubelet=config)
        return f"{chosen.topology_policy}/{chosen.topology_scope}: {self.restart('policy')}"

    def _new_owner(self) -> str:
        """The agent stops or starts, the Node object gets another policy, or the kubelet gets
        static managers, next to which no agent runs, or loses them. Pods stay."""
        if self._is_static():
            return self._managers(KubeletConfig(reserved_cpus=self.shape.kubelet.reserved_cpus))
        what = self.rng.choice(("agent", "label", "kubelet"))
        if what == "agent":
            return self._start_agent() if self.agent is None else self._stop_agent()
        if what == "label":
            self.owned_policy = self.rng.choice(("none", *LABELS))
            labels = _labels(self.owned_policy)
            self.shape = msgspec.structs.replace(self.shape, labels=labels)
            self.api.label_node(self.name, {POLICY_LABEL: labels.get(POLICY_LABEL)})
            return self.owned_policy
        self._stop_agent()
        aligning = Policies(self.owned_policy, self.shape.kubelet.topology_scope)
        return self._managers(lay_out(self.name, self._size(), aligning).kubelet)

    def _is_static(self) -> bool:
        return bool(self.owned_policy) and self.shape.kubelet.cpu_policy == "static"

    def _managers(self, config: KubeletConfig) -> str:
        self.shape = msgspec.structs.replace(self.shape, kubelet=config)
        restarted = self.restart("policy")
        return f"kubelet's CPU Manager {config.cpu_policy}: {restarted}"

    def _stop_agent(self) -> str:
        """Stop the agent. Containers keep their CPUs, and new ones are not confined."""
        self.agent = None
        return "agent stopped"

    def _start_agent(self) -> str:
        """Start the agent, which reads the annotations of running pods. They never contradict each
        other.
        """
        self.agent = NodeAgent(self.shape, None)
        for uid in self.running():
            pod = self.kubelet.pods[uid].pod
            if problem := self.agent.create(pod):
                self.unkept(self, pod, problem)
        return "agent started"

    def _turn(self, resource: str, device: str) -> str:
        """Make a device unhealthy, or healthy again."""
        self._sick ^= {(resource, device)}
        ill = (resource, device) in self._sick
        state = self.kubelet.state
        pool = dict(state.devices.registered[resource])
        pool[device] = msgspec.structs.replace(pool[device], healthy=not ill)
        registered = {**state.devices.registered, resource: DevicePool(pool)}
        state = msgspec.structs.replace(
            state, devices=msgspec.structs.replace(state.devices, registered=registered)
        )
        self.kubelet = msgspec.structs.replace(self.kubelet, state=state, shown=state)
        self._register()
        self._changed("lost device" if ill else "regained device")
        return "ill" if ill else "well"

    def _vanish(self, resource: str) -> str:
        """Stop the plugin of a resource. None of its devices may be allocated until it returns."""
        devices = sorted(self.kubelet.state.devices.registered[resource])
        well = [device for device in devices if (resource, device) not in self._sick]
        for device in well:
            self._turn(resource, device)
        return f"{len(well)} devices"

    def _register(self) -> None:
        """Post the Node object: the kubelet counts unhealthy devices, and does not offer them."""
        devices = {
            name: {
                each: msgspec.structs.replace(device, healthy=(name, each) not in self._sick)
                for each, device in listed.items()
            }
            for name, listed in self.shape.devices.items()
        }
        self.api.put_node(msgspec.structs.replace(self.shape, devices=devices), self.boot_id)

    def _changed(self, what: str) -> None:
        self.past.note("restart", self.kubelet)
        self.changes.append(Changed(self.clock.now_ms, self.api.store.version, what))

    def heal(self) -> None:
        """Make all devices healthy and start the agent, because faults have stopped."""
        for resource, device in sorted(self._sick) if self._trial is None and not self.down else ():
            self._turn(resource, device)
        if self.owned_policy and self.agent is None and not (self.down or self._is_static()):
            self._start_agent()

    def remove(self) -> str:
        """Delete the Node object and remove the machine."""
        self.down = True
        self._changed("removed")
        self.ended.update(dict.fromkeys(self.kubelet.pods, self.clock.now_ms))
        self._over.update(self.kubelet.pods)
        self.api.drop_node(self.name)
        return "gone"

    def rejoin(self) -> str:
        """Register another machine under the name."""
        self._boot()
        drawn = msgspec.structs.replace(
            policies(self.rng), owner=TOPOLOG if self.owned_policy else KUBELET
        )
        self.shape = lay_out(self.name, self._size(), drawn)
        self.kubelet = kubelet.start(self.shape)
        self._install()
        self.down, self._trial, self._steps, self._queue, self._posts, self._sick = (
            False,
            None,
            [],
            [],
            [],
            set(),
        )
        self._over.clear()
        self._register()
        self._changed("replaced")
        return self.boot_id

    def _size(self) -> NodeShape:
        devices = {resource: len(listed) for resource, listed in self.shape.devices.items()}
        memory = sum(zone.memory_bytes for zone in self.shape.machine.zones)
        return NodeShape(
            len(self.shape.machine.zones), len(self.shape.machine.cpus), memory, devices
        )

    def would_admit(self, pod: Pod) -> bool:
        """Whether this node, empty, offers what the pod asks for, and its kubelet would take it."""
        offered = self.shape.allocatable()
        if self.agent is not None and not self._has_zone_for(pod):
            return False
        if self.down or any(
            amount > offered.get(name, 0) for name, amount in effective_request(pod).items()
        ):
            return False
        return kubelet.begin(kubelet.assign(kubelet.start(self.shape), pod), pod.uid)[
            1
        ].verdict.admitted

    def _has_zone_for(self, pod: Pod) -> bool:
        """Whether some empty zone has all CPUs and memory of the pod."""
        assert self.agent is not None
        asked = {n: a for n, a in effective_request(pod).items() if is_owned_resource(n)}
        sizes = [self.agent.capacity(zone.id) for zone in self.shape.machine.zones]
        for size in sizes:
            size[MEMORY] -= self.shape.system_memory
        return any(all(size.get(n, 0) >= a for n, a in asked.items()) for size in sizes)

    def places(self) -> dict[str, list[ZonedAmount]]:
        """Uid -> the kubelet's amounts for that pod, by zone."""
        pods = {pod.key: pod.uid for known in self.kubelet.pods.values() if (pod := known.pod)}
        scan = reading.scan(
            self.kubelet.state,
            (known.pod for known in self.kubelet.pods.values()),
            Freshness("", 0),
            False,
        )
        by_zone: dict[str, list[ZonedAmount]] = {}
        for placement in (
            exporter.report(self.name, "truth", scan, exporter.Rules(ALL)).placements or ()
        ):
            uid = pods.get(f"{placement.namespace}/{placement.pod}", "")
            by_zone.setdefault(uid, []).extend(placement.held)
        return by_zone

    # -- the exporter
    # ----------------------------------------------------------------------------------------------

    def report(self, empty: bool = False) -> Report:
        """Return what the exporter reads now, or would read if the node had no pods."""
        node = kubelet.start(self.shape) if empty else self.kubelet
        freshness = Freshness(self.boot_id, self.clock.now_ms - self.booted_ms[self.boot_id])
        pods = (known.pod for known in node.pods.values())
        scan = reading.scan(node.shown, pods, freshness, self.mode == "uid")
        if not empty:
            scan, self._begun = self._completed(scan), None
        if self.owned_policy:
            scan = self._enforced(scan, empty)
        rules = exporter.Rules(ALL if self.mode == "all prints" else EXCLUSIVE)
        report = exporter.report(self.name, f"exporter-{self.name}", scan, rules)
        return msgspec.structs.replace(report, placements=None) if "prints" in self.mode else report

    def _enforced(self, scan: exporter.Scan, empty: bool) -> exporter.Scan:
        """Return the scan with what the kubelet reserves, and what the agent says."""
        memory = self.shape.system_memory * len(self.shape.machine.zones)
        reserved = Reserved(self.shape.kubelet.reserved_cpus, {MEMORY: memory})
        statement = NOBODY if self.agent is None else self.agent.statement
        return msgspec.structs.replace(
            scan,
            kubelet=msgspec.structs.replace(scan.kubelet, reserved=reserved),
            statement=Statement() if empty and self.agent is not None else statement,
        )

    def read(self) -> str:
        """Begin a scan with everything that the exporter reads before List."""
        freshness = Freshness(self.boot_id, self.clock.now_ms - self.booted_ms[self.boot_id])
        self._begun = reading.scan(self.kubelet.shown, (), freshness, False)
        return ""

    def _completed(self, scan: exporter.Scan) -> exporter.Scan:
        """A scan that began earlier in this boot: its parts are of different moments, and it counts
        as of the first.
        """
        begun = self._begun
        if begun is None or begun.freshness.boot_id != scan.freshness.boot_id:
            return scan
        earlier = {
            name: getattr(begun, name)
            for name in ("freshness", "machine", "allocatable", "kubelet")
        }
        return msgspec.structs.replace(scan, **earlier)


def _labels(policy: str) -> dict[str, str]:
    return {POLICY_LABEL: LABELS[policy]} if policy in LABELS else {}


def _started(node: KubeletNode) -> KubeletNode:
    """After a boot every container starts again, and with the later ones the init containers'
    amounts are free again.
    """
    state = node.state
    for pod in node.pods.values():
        state = start_containers(state, pod.pod)
    return msgspec.structs.replace(node, state=state, shown=state)
