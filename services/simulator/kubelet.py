"""A simulated kubelet's decisions: which pods it lists and admits, and which steps podresources
shows.

A kubelet is a value, and this module is pure. A pod is listed with no resources as soon as it is
assigned. Its admission (shared/kubelet) then goes through the states that podresources shows in
between. The pod runs or is refused, and ends. One pod is admitted at a time, as in a kubelet. This
module does not know the API server, sockets, files or clocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from services.simulator.cluster import SimulatedNode
from shared.domain.pod import Pod
from shared.domain.resources import Amounts
from shared.kubelet import admission
from shared.kubelet.admission import Admission
from shared.kubelet.device_manager import Preferred
from shared.kubelet.machine import ActivePod, KubeletState, Stale, build
from shared.kubelet.node_level import shortage
from shared.kubelet.options import ConfigError
from shared.owned.annotations import devices_of
from shared.owned.request import PodSpecError

Phase = Literal["waiting", "admitting", "running"]


class KnownPod(msgspec.Struct, frozen=True):
    """A pod that is active on this kubelet."""

    pod: Pod
    phase: Phase = "waiting"


class KubeletNode(msgspec.Struct, frozen=True):
    """One kubelet. `state` is its managers' state; `shown` is the state that podresources lists,
    which is an older one while a pod is being admitted.
    """

    state: KubeletState
    shown: KubeletState
    allocatable: Amounts
    pods: Mapping[str, KnownPod] = {}


class Trial(msgspec.Struct, frozen=True):
    """A computed admission: its result, and the states that are visible on the way, in order."""

    uid: str
    steps: tuple[KubeletState, ...]
    verdict: Admission


class StartError(ValueError):
    """A kubelet with this machine and configuration would not start. The message is the kubelet's,
    with the node's name.
    """


def start(node: SimulatedNode) -> KubeletNode:
    """Return a kubelet on an empty machine. Raises StartError."""
    state = build(node.machine, node.kubelet, node.devices)
    if isinstance(state, ConfigError):
        raise StartError(f"node {node.name}: the kubelet would not start: {state}")
    return KubeletNode(state, state, node.allocatable())


def resume(
    node: KubeletNode, stored: KubeletState, pods: list[Pod]
) -> tuple[KubeletNode, list[tuple[str, Admission]]]:
    """Restart the kubelet on its stored state, and admit the pods again in order. Return it with
    the refusals.

    If the kubelet refuses the stored state, the pods are admitted on an empty machine.
    """
    wanted = {pod.uid: ActivePod(pod) for pod in pods}
    for base in (stored, node.state):
        gone = tuple(sorted(holders(base) - set(wanted)))
        begun = KubeletState(
            base.kubelet, base.cpu, base.memory, base.devices, wanted, Stale(gone, gone, gone)
        )
        again = admission.restart(begun)
        if not isinstance(again, ConfigError):
            break
    else:
        raise StartError(f"the kubelet would not start: {again}")
    refused = [(uid, verdict) for uid, verdict in again.readmissions if not verdict.admitted]
    out = {uid for uid, _ in refused}
    known_pods = {pod.uid: KnownPod(pod, "running") for pod in pods if pod.uid not in out}
    state = admission.drop_stale(again.state)
    return KubeletNode(state, state, node.allocatable, known_pods), refused


def holders(state: KubeletState) -> frozenset[str]:
    """Return the uids of pods that hold something of some manager."""
    return frozenset({*state.cpu.entries, *state.memory.entries, *state.devices.held})


def assign(node: KubeletNode, pod: Pod) -> KubeletNode:
    """Return the node with a new pod, which is listed at once with no resources."""
    return _with_pods(node, {**node.pods, pod.uid: KnownPod(pod)})


def begin(node: KubeletNode, uid: str) -> tuple[KubeletNode, Trial]:
    """Compute the admission of a waiting pod. `show` makes its steps visible, and `conclude` ends
    it.
    """
    pod = node.pods[uid].pod
    walk = admission.admission_steps(node.state, pod, prefer=_preferred(pod))
    steps: list[KubeletState] = []
    while True:
        try:
            steps.append(next(walk))
        except StopIteration as stop:
            verdict: Admission = stop.value
            break
    verdict = _after_predicates(node, pod, verdict)
    trial = Trial(uid, tuple(steps[1:]), verdict)
    return _with_pods(node, {**node.pods, uid: KnownPod(pod, "admitting")}), trial


def _preferred(pod: Pod) -> Preferred:
    """Return the choice of a device plugin that gives a pod the cards that a scheduler chose."""
    try:
        chosen_ids = {card.id for card in devices_of(pod.annotations)}
    except PodSpecError:
        chosen_ids = set()
    return lambda _resource, available, _included, _size: available & chosen_ids


def show(node: KubeletNode, step: KubeletState) -> KubeletNode:
    """Return the node with one step of an admission visible."""
    return KubeletNode(node.state, step, node.allocatable, node.pods)


def conclude(node: KubeletNode, trial: Trial) -> KubeletNode:
    """Return the node after an admission: the pod runs with its holdings, or is removed."""
    pods = {uid: known_pod for uid, known_pod in node.pods.items() if uid != trial.uid}
    state = admission.drop_stale(trial.verdict.state)
    if trial.verdict.admitted and trial.uid in node.pods:
        pod = node.pods[trial.uid].pod
        state = admission.start_containers(state, pod)
        pods[trial.uid] = KnownPod(pod, "running")
    elif trial.verdict.admitted:
        state = _without(state, trial.uid)
    return KubeletNode(state, state, node.allocatable, pods)


def end(node: KubeletNode, uid: str) -> KubeletNode:
    """Return the node after a pod ended or was deleted. A pod in admission leaves the list now, and
    frees its resources at `conclude`.
    """
    known_pod = node.pods.get(uid)
    if known_pod is None:
        return node
    pods = {pod_uid: kept for pod_uid, kept in node.pods.items() if pod_uid != uid}
    if known_pod.phase != "running":
        return _with_pods(node, pods)
    state = _without(node.state, uid)
    shown = state if node.shown is node.state else _without(node.shown, uid)
    return KubeletNode(state, shown, node.allocatable, pods)


def rebase(node: KubeletNode, trial: Trial) -> Trial:
    """Return the admission with the resources of pods freed that ended during it."""
    state = trial.verdict.state
    for uid in set(state.pods) - set(node.state.pods) - {trial.uid}:
        state = _without(state, uid)
    return Trial(trial.uid, trial.steps, msgspec.structs.replace(trial.verdict, state=state))


def _without(state: KubeletState, uid: str) -> KubeletState:
    """Return the state after a pod ended, with its resources free at once. A kubelet frees them at
    its next admission, with the same result for the next pod.
    """
    return admission.drop_stale(admission.remove(state, uid))


def _with_pods(node: KubeletNode, pods: Mapping[str, KnownPod]) -> KubeletNode:
    return KubeletNode(node.state, node.shown, node.allocatable, pods)


def _after_predicates(node: KubeletNode, pod: Pod, verdict: Admission) -> Admission:
    """Return the result of the node-level check that follows the Topology Manager: `OutOfcpu` and
    the like (kubelet 1.36, GeneralPredicates).
    """
    if not verdict.admitted:
        return verdict
    others = (
        known_pod.pod
        for uid, known_pod in node.pods.items()
        if known_pod.phase == "running" and uid != pod.uid
    )
    short = shortage(node.allocatable, others, pod)
    if short is None:
        return verdict
    return Admission(_without(verdict.state, pod.uid), False, short.reason, short.message)
