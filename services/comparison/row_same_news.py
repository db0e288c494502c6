"""The oracle with the same news: what reports could tell at best, and nothing that a scheduler cannot have heard.

It knows the kubelet's whole state as of the newest report that arrived, and the ends that the API told. Between them it follows
some of the states that kubelets may be in: pods on their way in the order of their decisions or the other way round, and any one
pod ended that nobody has heard of. It places a pod only where all of these admit it and nobody on the way loses its place.
Every scheduler that never risks a rejection must refuse at least as much: what this row does not reach is unattainable.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from services.comparison.columns import zone_column
from services.comparison.row_oracle import OracleRow, roomy
from services.comparison.truth import TrueNode, free_of
from shared.domain.pod import Pod
from shared.domain.report import Report
from shared.events.catalog import Fact
from shared.events.cluster_facts import PodEnded
from shared.kubelet import admission
from shared.kubelet.machine import KubeletState


class SameNewsRow(OracleRow):
    """`_base` is what a node's newest report shows, ends that were heard taken out; `_coming` what was sent there since."""

    clairvoyant = False

    def __init__(self, nodes: Mapping[str, TrueNode], zones: int, aligns: bool) -> None:
        self._base = {name: node.kubelet.state for name, node in nodes.items()}
        self._coming: dict[str, dict[str, Pod]] = {name: {} for name in nodes}
        self._ended: set[str] = set()
        self._states: dict[str, list[KubeletState]] = {}
        super().__init__(nodes, zones, aligns)

    def tell(self, stream: str, fact: Fact, now_s: float) -> None:
        super().tell(stream, fact, now_s)
        if isinstance(fact, PodEnded) and fact.node:
            self._ended.add(fact.uid)
            self._coming[fact.node].pop(fact.uid, None)
            if fact.uid in self._base[fact.node].pods:
                self._base[fact.node] = admission.remove(self._base[fact.node], fact.uid)
            self._news(fact.node)

    def reported(self, report: Report, now_s: float) -> None:
        state = self._nodes[report.node].scans.get(report.boot_time_ms)
        if state is None:
            return
        for uid in [uid for uid in state.pods if uid in self._ended]:
            state = admission.remove(state, uid)
        self._base[report.node] = state
        for uid in state.pods:
            self._coming[report.node].pop(uid, None)
        self._news(report.node)

    def _news(self, node: str) -> None:
        self._states.pop(node, None)
        self.changed.add(node)

    def _admitted(self, pod: Pod, at: int) -> bool:
        name = self._names[at]
        coming = self._coming[name].values()
        held = [*(state.pod for state in self._base[name].pods.values()), *coming]
        if not roomy(self._nodes[name], pod, held):
            return False
        if not all(admission.admit(state, pod).admitted for state in self._consistent(name)):
            return False
        first = admission.admit(self._base[name], pod)
        if coming and not (first.admitted and _after(first.state, coming) is not None):
            return False
        self._nodes[name].reserved(pod)
        self._coming[name][pod.uid] = pod
        self._states.pop(name, None)
        self._refresh(at)
        return True

    def _consistent(self, name: str) -> list[KubeletState]:
        known = self._states.get(name)
        if known is None:
            known = self._states[name] = list(self._followed(name))
        return known

    def _followed(self, name: str) -> Iterator[KubeletState]:
        base, coming = self._base[name], list(self._coming[name].values())
        if not coming:
            yield base
            return
        orders = [coming, coming[::-1]] if len(coming) > 1 else [coming]
        for start in (base, *(admission.remove(base, uid) for uid in base.pods)):
            for order in orders:
                state = _after(start, order)
                if state is not None:
                    yield state

    def _refresh(self, at: int) -> None:
        states = self._consistent(self._names[at])
        self._free[:, :, at] = zone_column(free_of(states[0] if states else self._base[self._names[at]]), self._zones)

    def visible_cpu(self, node: str) -> dict[int, int]:
        """Zone -> what is free in all of the states, each of which holds everything that may still run."""
        coming = list(self._coming[node].values())
        orders = (coming, coming[::-1])
        found = [free_of(state) for order in orders if (state := _after(self._base[node], order)) is not None]
        zones = found[0] if found else {}
        return {zone: min(each[zone].get("cpu", 0) for each in found) for zone in zones}


def _after(state: KubeletState, pods: Iterable[Pod]) -> KubeletState | None:
    """The state once these pods came in this order; None where one of them would not be admitted."""
    for pod in pods:
        admitted = admission.admit(state, pod)
        if not admitted.admitted:
            return None
        state = admitted.state
    return state
