"""The kubelets: what their pods hold, what podresources shows of it, and why a kubelet rejected a
pod.

The simulated kubelet (`services.simulator.kubelet`) decides, and the production exporter makes the
reports. Every node keeps its recent past, to decide whether a rejection would have happened without
an end after the decision.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Set
from functools import reduce
from operator import or_
from typing import Literal, cast

import msgspec

from services.comparison.owned_zones import OwnedZones
from services.exporter import core as exporter
from services.exporter.answers import (
    Allocatable,
    DeviceGroup,
    ListedContainer,
    ListedPod,
    MemoryBlock,
)
from services.exporter.checkpoints import NOTHING_READ
from services.exporter.reserved import Reserved
from services.simulator import kubelet, kubelet_files, reading
from services.simulator.cluster import SimulatedNode
from services.simulator.kubelet import KubeletNode, Trial
from shared.domain.effective import effective_request
from shared.domain.pod import Pod
from shared.domain.policies import NONE, Policy
from shared.domain.report import Freshness, Report
from shared.domain.resources import MEMORY, Amounts
from shared.kubelet import admission
from shared.kubelet.admission import Admission
from shared.kubelet.assignment import ContainerAssignment, placements
from shared.kubelet.cpuset import each_cpu
from shared.kubelet.machine import KubeletState
from shared.kubelet.masks import nodes_of

# Admissions and ends for which a node keeps its earlier state.
PAST = 64
Cause = Literal["after an end", "overtaken", "unexplained"]
AFTER_END: Cause = "after an end"
OVERTAKEN: Cause = "overtaken"
UNEXPLAINED: Cause = "unexplained"
# Newest reports for which a node keeps the kubelet's state, for rows that get the same reports.
SCANS = 8
RULES = exporter.Rules()


class Past(msgspec.Struct):
    """A pod was admitted or ended at `at_s`. `before` is the kubelet's state before that,
    `reported_s` the time when the scheduler learns of the end, `order` the number of the decision
    that sent the pod here.
    """

    at_s: float
    kind: str
    pod: Pod
    before: KubeletState
    reported_s: float = float("inf")
    order: int = 0


class TrueNode:
    """One kubelet. `changed` says that podresources may have changed since the last scan."""

    def __init__(self, node: SimulatedNode, checkpoint: bool = False) -> None:
        self.simulated, self.checkpoint = node, checkpoint
        self.kubelet: KubeletNode = kubelet.start(node)
        self.trial: Trial | None = None
        self.changed = True
        self.past: deque[Past] = deque(maxlen=PAST)
        self.scans: dict[int, KubeletState] = {}
        self.pending: dict[str, Pod] = {}
        self._machine = reading.machine(node.machine)
        self._allocatable = _allocatable(self.kubelet.state)
        self._facts = reading.settings(node.kubelet)
        self.owned: OwnedZones | None = None
        if node.owned_policy:
            self.owned = OwnedZones(node, cast("Policy", node.owned_policy))
            memory = node.system_memory * len(node.machine.zones)
            reserved = Reserved(node.kubelet.reserved_cpus, {MEMORY: memory})
            self._facts = msgspec.structs.replace(self._facts, reserved=reserved)
        self._shadow: KubeletState | None = None

    @property
    def name(self) -> str:
        """The node's name."""
        return self.simulated.name

    # -- what happens to it
    # ----------------------------------------------------------------------------------------------

    def reserved(self, pod: Pod) -> None:
        """Note a pod that the scheduler placed here, and that the kubelet has not admitted yet."""
        self.pending[pod.uid] = pod
        self._shadow = None

    def withdrawn(self, uid: str) -> None:
        """Forget a pod whose reservation was withdrawn."""
        self.pending.pop(uid, None)
        self._shadow = None

    def assigned(self, pod: Pod) -> None:
        """Let the kubelet list the pod, which holds nothing yet."""
        self.kubelet = kubelet.assign(self.kubelet, pod)
        self.changed = True

    def begin(self, uid: str) -> Trial:
        """Begin the admission of a listed pod."""
        self.kubelet, self.trial = kubelet.begin(self.kubelet, uid)
        return self.trial

    def show(self, step: KubeletState) -> None:
        """Show one more step of the running admission."""
        self.kubelet = kubelet.show(self.kubelet, step)
        self.changed = True

    def conclude(self, pod: Pod, now_s: float, order: int = 0) -> Trial:
        """End the admission, and return it."""
        assert self.trial is not None
        trial, self.trial = kubelet.rebase(self.kubelet, self.trial), None
        if self.owned is not None and trial.verdict.admitted:
            trial = _refused(trial, self.owned.agent.create(pod))
        if trial.verdict.admitted:
            self.past.append(Past(now_s, "admit", pod, self.kubelet.state, order=order))
        self.kubelet = kubelet.conclude(self.kubelet, trial)
        self.pending.pop(pod.uid, None)
        self.changed, self._shadow = True, None
        return trial

    def end(self, pod: Pod, now_s: float, reported_s: float) -> None:
        """End the pod and free its resources. The scheduler learns of it at `reported_s`."""
        self.past.append(Past(now_s, "end", pod, self.kubelet.state, reported_s))
        self.kubelet = kubelet.end(self.kubelet, pod.uid)
        if self.owned is not None:
            self.owned.agent.end(pod.uid)
        self.changed, self._shadow = True, None

    # -- questions
    # ----------------------------------------------------------------------------------------------

    def as_bound(self, pod: Pod) -> Pod | None:
        """Return the pod as it is bound here before the run; None if it does not fit."""
        if self.owned is not None:
            return self.owned.with_zones(pod)
        return pod if admission.admit(self.kubelet.state, pod).admitted else None

    def zones_of(self, pod: Pod) -> list[int]:
        """Return the zone mask of each part of an admitted pod that holds something (`parts_held`),
        with the zones that Topolog chose for the pod.
        """
        parts = parts_held(self.kubelet.state, pod)
        chosen = self.owned.agent.zones_of(pod.uid) if self.owned is not None else 0
        return [part | chosen for part in parts or [0] if part | chosen]

    def shadow(self) -> KubeletState:
        """The kubelet's state after the admission of all pending pods: what an oracle knows."""
        if self._shadow is None:
            state = self.kubelet.state
            for pod in self.pending.values():
                state = admission.admit(state, pod).state
            self._shadow = state
        return self._shadow

    def has_room(self, pod: Pod) -> bool:
        """Return whether the whole node has room for the pod next to all pending pods."""
        pods = (*(known.pod for known in self.kubelet.pods.values()), *self.pending.values())
        asked, taken = effective_request(pod), Counter[str]()
        for running in {known.uid: known for known in pods if known.uid != pod.uid}.values():
            taken.update(effective_request(running))
        allocatable = self.kubelet.allocatable
        return all(taken[name] + asked[name] <= allocatable.get(name, 0) for name in asked)

    def why_refused(self, pod: Pod, decided: tuple[float, int]) -> Cause:
        """Return the cause of a rejection that could not be foreseen when the pod was `decided`
        (time, and number of the decision).

        If Topolog chooses the zones, no rejection has such a cause. Otherwise the cause is an end
        that the scheduler did not know yet, if the pod would have been admitted without one or all
        of these ends, or if an end was one of two sufficient causes. Else it is a pod that was
        decided later and admitted earlier.
        """
        if self.owned is not None:
            return UNEXPLAINED
        recent = list(self.past)
        ends = {
            index
            for index, past_event in enumerate(recent)
            if past_event.kind == "end" and past_event.reported_s > decided[0]
        }
        later = {
            index
            for index, past_event in enumerate(recent)
            if past_event.kind == "admit" and past_event.order > decided[1]
        }
        if any(not self._refused_without(pod, out) for out in (ends, *({end} for end in ends))):
            return AFTER_END
        if self._refused_without(pod, ends | later):
            return UNEXPLAINED
        return AFTER_END if self._refused_without(pod, later) else OVERTAKEN

    def _refused_without(self, pod: Pod, left_out: Set[int]) -> bool:
        """Return whether the kubelet would have refused the pod without these entries of `past`.
        The others since the first of them are played again.
        """
        if not left_out:
            return True
        recent, first = list(self.past), min(left_out)
        state = recent[first].before
        for index, past_event in enumerate(recent[first:], first):
            if index not in left_out:
                admitted = past_event.kind == "admit"
                state = (
                    admission.admit(state, past_event.pod).state
                    if admitted
                    else admission.remove(state, past_event.pod.uid)
                )
        return not admission.admit(state, pod).admitted

    def report(self, now_s: float) -> Report:
        """Return the production exporter's report of this moment, with the kubelet's checkpoints if
        `checkpoint` is set.
        """
        self.changed = False
        if self.owned is not None:
            return self._owned_report(self.owned, now_s)
        pods = tuple(
            _listed(known_pod.pod, self.kubelet.shown) for known_pod in self.kubelet.pods.values()
        )
        moment = Freshness("boot", int(now_s * 1000) + 1)
        self.scans[int(now_s * 1000) + 1] = self.kubelet.state
        while len(self.scans) > SCANS:
            del self.scans[next(iter(self.scans))]
        stored = kubelet_files.stored(self.kubelet.shown) if self.checkpoint else NOTHING_READ
        scan = exporter.Scan(moment, self._machine, self._allocatable, pods, self._facts, stored)
        return exporter.report(self.name, "bench", scan, RULES)

    def _owned_report(self, owned: OwnedZones, now_s: float) -> Report:
        moment = Freshness("boot", int(now_s * 1000) + 1)
        pods = [known_pod.pod for known_pod in self.kubelet.pods.values()]
        scan = reading.scan(self.kubelet.shown, pods, moment, self.checkpoint)
        statement = owned.agent.statement
        scan = msgspec.structs.replace(scan, kubelet=self._facts, statement=statement)
        return exporter.report(self.name, "bench", scan, RULES)

    def free(self) -> dict[int, Amounts]:
        """Return the free amounts by zone after the admission of all pending pods; {} if Topolog
        chooses the zones.
        """
        return free_of(self.shadow()) if self.owned is None else {}


def _refused(trial: Trial, problem: str) -> Trial:
    """Return the admission as the agent leaves it: refused if there is a problem."""
    if not problem:
        return trial
    state = admission.remove(trial.verdict.state, trial.uid)
    return Trial(trial.uid, trial.steps, Admission(state, False, "CreateContainerError", problem))


def free_of(state: KubeletState) -> dict[int, Amounts]:
    """Return the free CPUs (millicpu, without reserved ones), memory and devices by zone."""
    settled = admission.drop_stale(state)
    manager = settled.kubelet.cpu
    shared = settled.cpu.shared & ~manager.reserved
    free: dict[int, Amounts] = {
        zone_id: {"cpu": (shared & mask).bit_count() * 1000}
        for zone_id, mask in manager.topology.numa_mask.items()
    }
    for zone_id, node in settled.memory.nodes.items():
        tables = node.tables
        free.setdefault(zone_id, {"cpu": 0})[MEMORY] = (
            tables[MEMORY].free if MEMORY in tables else 0
        )
    for resource, devices in settled.devices.registered.items():
        in_use = settled.devices.in_use.get(resource, frozenset())
        for name, device in devices.items():
            for zone_id in nodes_of(device.mask) if name not in in_use else ():
                amounts = free.setdefault(zone_id, {"cpu": 0})
                amounts[resource] = amounts.get(resource, 0) + 1
    return free


def parts_held(state: KubeletState, pod: Pod) -> list[int]:
    """Return the zone mask of each part of an admitted pod that holds something: of the whole pod
    under scope pod, else of each container that runs on. A device in several zones counts in one.
    """
    masks = []
    scope = state.kubelet.config.topology_scope
    policy = state.kubelet.config.topology_policy
    for part, assignment in zip(pod.containers, placements(state, pod), strict=True):
        if part.kind != "init":
            masks.append(_zones_held(state, assignment))
    if scope == "pod" and policy != NONE:
        masks = [reduce(or_, masks, 0)]
    return [mask for mask in masks if mask]


def _zones_held(state: KubeletState, assignment: ContainerAssignment) -> int:
    mask = 0
    for zone, cpus in state.kubelet.cpu.topology.numa_mask.items():
        mask |= 1 << zone if assignment.cpus & cpus else 0
    for block in assignment.memory:
        mask |= block.mask
    groups = [
        state.devices.registered[resource][name].mask or 0
        for resource, names in assignment.devices.items()
        for name in names
    ]
    for group in sorted(groups, key=int.bit_count):
        mask |= 0 if group & mask else group & -group
    return mask


def _allocatable(state: KubeletState) -> Allocatable:
    manager = state.kubelet.cpu
    memory = [
        MemoryBlock(resource, (zone,), table.allocatable)
        for zone, node in state.memory.nodes.items()
        for resource, table in node.tables.items()
        if table.allocatable
    ]
    devices = [
        DeviceGroup(resource, (name,), tuple(nodes_of(device.mask or 0)))
        for resource, listed in state.devices.registered.items()
        for name, device in listed.items()
    ]
    return Allocatable(
        tuple(each_cpu(manager.topology.every & ~manager.reserved)), tuple(memory), tuple(devices)
    )


def _listed(pod: Pod, shown: KubeletState) -> ListedPod:
    """Return the pod as podresources lists it, without its ordinary init containers."""
    assignments = zip(pod.containers, placements(shown, pod), strict=True)
    return ListedPod(
        pod.namespace,
        pod.name,
        tuple(
            _container(assignment, shown) for part, assignment in assignments if part.kind != "init"
        ),
    )


def _container(assignment: ContainerAssignment, shown: KubeletState) -> ListedContainer:
    memory = tuple(
        MemoryBlock(block.resource, tuple(nodes_of(block.mask)), block.size)
        for block in assignment.memory
    )
    return ListedContainer(
        assignment.name, assignment.cpu_ids, memory, tuple(_groups(assignment, shown))
    )


def _groups(assignment: ContainerAssignment, shown: KubeletState) -> Iterable[DeviceGroup]:
    for resource, names in assignment.devices.items():
        for name in names:
            yield DeviceGroup(
                resource,
                (name,),
                tuple(nodes_of(shown.devices.registered[resource][name].mask or 0)),
            )
