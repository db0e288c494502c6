"""The oracle: knows the holdings of every kubelet, and the zones of pending pods, at every
moment.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from services.comparison.columns import (
    ABSENT,
    NAMES,
    Bools,
    Ints,
    fits,
    requests,
    salt_of,
    score,
    zone_column,
)
from services.comparison.rows import Reservation
from services.comparison.truth import TrueNode
from shared.domain.pod import Pod
from shared.domain.report import Report
from shared.events.catalog import Event
from shared.events.cluster_events import PodEnded, PodObserved
from shared.kubelet import admission

# Nodes whose kubelet is asked for one pod before the pod waits.
TRIES = 64

Shape = tuple[object, ...]


class OracleRow:
    """`changed` names nodes whose kubelets freed or took something; waiting pods are tried again
    only there.

    With `aligns`, a container must fit one zone; otherwise all zones together must hold it. The
    kubelet model decides. The score is MostAllocated.
    """

    def __init__(self, nodes: Mapping[str, TrueNode], zones: int, aligns: bool) -> None:
        self._nodes, self._zones, self._aligns = nodes, zones, aligns
        self._names = list(nodes)
        self._at = {name: index for index, name in enumerate(self._names)}
        self._free: Ints = np.full((len(NAMES), zones, len(nodes)), ABSENT, dtype=np.int64)
        self._salts = np.array([salt_of(name) for name in nodes], dtype=np.uint64)
        self._new: list[Pod] = []
        self._waiting: dict[Shape, dict[str, Pod]] = {}
        self.changed: set[str] = set(nodes)

    clairvoyant = True

    def happened(self, node: str) -> None:
        self.changed.add(node)

    def evolve(self, stream: str, event: Event, now_s: float) -> None:
        if isinstance(event, PodObserved) and not event.node:
            self._new.append(event.pod)
        elif isinstance(event, PodEnded):
            for group in self._waiting.values():
                group.pop(event.uid, None)

    def reported(self, report: Report, now_s: float) -> None:
        """The oracle needs no reports."""

    def decide(self, now_s: float) -> list[Reservation]:
        changed = sorted(self._at[name] for name in self.changed)
        for index in changed:
            self._refresh(index)
        self.changed.clear()
        reserved: list[Reservation] = []
        for shape in list(self._waiting):
            self._retry(shape, changed, reserved)
        for pod in self._new:
            if not self._place(pod, None, reserved):
                self._waiting.setdefault(_shape(pod), {})[pod.uid] = pod
        self._new.clear()
        return reserved

    def _retry(self, shape: Shape, changed: list[int], reserved: list[Reservation]) -> None:
        group = self._waiting[shape]
        while group:
            uid, pod = next(iter(group.items()))
            if not self._place(pod, changed, reserved):
                return
            del group[uid]
        del self._waiting[shape]

    def _place(self, pod: Pod, among: list[int] | None, reserved: list[Reservation]) -> bool:
        inits, apps = requests(pod)
        chosen = np.arange(len(self._names)) if among is None else np.array(among, dtype=np.int64)
        if not len(chosen):
            return False
        free = self._free if among is None else self._free[:, :, chosen]
        passed = np.ones(len(chosen), dtype=np.bool_)
        for request in (*inits, *apps):
            listed = (free != ABSENT).any(axis=1) | (request == 0)[:, None]
            passed &= self._holds(free, request) & listed.all(axis=0)
        if not passed.any():
            return False
        scores = score(free, [*inits, *apps], most=True)
        order = np.lexsort((self._salts[chosen] ^ np.uint64(salt_of(pod.uid)), -scores))
        for index in [slot for slot in order.tolist() if passed[slot]][:TRIES]:
            if self._admitted(pod, int(chosen[index])):
                reserved.append((pod.uid, self._names[int(chosen[index])]))
                return True
        return False

    def _holds(self, free: Ints, request: Ints) -> Bools:
        alone = fits(free, request)
        together = np.maximum(free, 0).sum(axis=1) >= request[:, None]
        fitting: Bools = (
            np.logical_or.reduce(alone, axis=0)
            if self._aligns
            else np.logical_and.reduce(together, axis=0)
        )
        return fitting

    def _admitted(self, pod: Pod, index: int) -> bool:
        node = self._nodes[self._names[index]]
        if not node.has_room(pod) or not admission.admit(node.shadow(), pod).admitted:
            return False
        node.reserved(pod)
        self._refresh(index)
        return True

    def _refresh(self, index: int) -> None:
        self._free[:, :, index] = zone_column(self._nodes[self._names[index]].free(), self._zones)

    def intends(self, pod: Pod, node: str, now_s: float) -> None:
        """Nothing to remember: the node knows what comes."""

    def bound(self, pod: Pod, node: str, now_s: float) -> None:
        """Nothing to remember."""

    def next_s(self, now_s: float) -> float | None:
        return None

    def waiting(self) -> int:
        return len(self._new) + sum(len(group) for group in self._waiting.values())

    def visible_cpu(self, node: str) -> dict[int, int]:
        return {zone: amounts.get("cpu", 0) for zone, amounts in self._nodes[node].free().items()}


def _shape(pod: Pod) -> Shape:
    return tuple((part.kind, tuple(sorted(part.requests.items()))) for part in pod.containers)
