"""What a pod prefers of nodes: preferred node affinity and PreferNoSchedule taints, as points
beside the zones' score.

Weights as kube-scheduler's defaults (1.36): NodeAffinity 2, TaintToleration 3, each 0..100 after
its normalising over all nodes. Must not know zones or what else runs.

Nodes that one of several schedulers tries first, so that two of them seldom reserve on one node
at once.

Its own nodes come before all others, whatever they score; where none of them takes the pod, the
others do. A pod that prefers nodes itself is not asked to prefer others. Must not know who shares
with whom.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from services.scheduler.filter.constraints.predicates import matches, tolerated
from services.scheduler.snapshot.node_arrays import ScoreOffsets
from services.scheduler.snapshot.node_info import NodeInfo
from shared.domain.pod import Constraints, Pod
from shared.events.cluster_events import NodeObserved

AFFINITY_WEIGHT, TAINT_WEIGHT, HIGHEST = 2, 3, 100
_ENCODER = msgspec.msgpack.Encoder()


class Preferences:
    """Raw points by distinct preferences and node, kept until the node's object changes; the
    longest unused go first.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._shunned: set[int] = set()
        self._columns: dict[bytes, npt.NDArray[np.int32]] = {}

    def changed(self, slot: int, node: NodeObserved | None) -> None:
        """Another node object stands in the slot."""
        for column in self._columns.values():
            if slot < column.shape[1]:
                column[:, slot] = -1
        if node is not None and any(taint.effect == "PreferNoSchedule" for taint in node.taints):
            self._shunned.add(slot)
        else:
            self._shunned.discard(slot)

    def of(self, pod: Pod, nodes: list[NodeInfo | None]) -> ScoreOffsets | None:
        """Points by slot, None where the pod prefers nothing and no node asks to be left alone."""
        wanted = pod.constraints
        if not wanted.preferred_affinity and not self._shunned:
            return None
        affinity, taints = self._raw(wanted, nodes)
        most, worst = int(affinity.max(initial=0)), int(taints.max(initial=0))
        offsets = np.zeros(len(nodes), dtype=np.int32)
        if most:
            offsets += AFFINITY_WEIGHT * (HIGHEST * affinity // most)
        if worst:
            offsets += TAINT_WEIGHT * (HIGHEST - HIGHEST * taints // worst)
        return offsets if most or worst else None

    def _raw(self, wanted: Constraints, nodes: list[NodeInfo | None]) -> npt.NDArray[np.int32]:
        key = _ENCODER.encode((wanted.preferred_affinity, wanted.tolerations))
        column = self._columns.pop(key, np.zeros((2, 0), dtype=np.int32))
        if column.shape[1] < len(nodes):
            new = np.full((2, len(nodes) - column.shape[1]), -1, dtype=np.int32)
            column = np.concatenate([column, new], axis=1)
        for slot in np.flatnonzero(column[0] < 0).tolist():
            node_info = nodes[slot]
            column[:, slot] = (
                (0, 0)
                if node_info is None or node_info.observed is None
                else _points(wanted, node_info.observed)
            )
        self._columns[key] = column
        if len(self._columns) > self._limit:
            del self._columns[next(iter(self._columns))]
        return column


def _points(wanted: Constraints, node: NodeObserved) -> tuple[int, int]:
    """(weights of the preferred terms that match, PreferNoSchedule taints that are not tolerated)."""
    affinity = sum(weight for weight, term in wanted.preferred_affinity if matches(term, node))
    shunning = [taint for taint in node.taints if taint.effect == "PreferNoSchedule"]
    return affinity, sum(not tolerated(taint, wanted.tolerations) for taint in shunning)


ABROAD = -1_000
"""Below every score, above being barred."""


class PreferredNodes:
    """Lifts by slot; None while every node is one's own."""

    def __init__(self) -> None:
        self._has: Callable[[str], bool] | None = None
        self._lifts: ScoreOffsets | None = None

    def share(self, has: Callable[[str], bool] | None) -> None:
        """Prefer the nodes of which `has` is true; None prefers none."""
        self._has, self._lifts = has, None

    def entered(self) -> None:
        """Another node stands in some slot."""
        self._lifts = None

    def offsets(self, slots: Sequence[NodeInfo | None]) -> ScoreOffsets | None:
        """What the nodes' scores are lifted by."""
        if self._has is None:
            return None
        if self._lifts is None:
            found = [
                0 if node_info is not None and self._has(node_info.name) else ABROAD
                for node_info in slots
            ]
            self._lifts = np.array(found, dtype=np.int32)
        return self._lifts
