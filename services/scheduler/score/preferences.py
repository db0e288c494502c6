"""Preferences of pods and of the scheduler, as points that are added to the zones' score.

1. A pod's preferred node affinity and PreferNoSchedule taints count with kube-scheduler's default
   weights (1.36): NodeAffinity 2, TaintToleration 3, each 0..100 after normalising over all nodes.
2. Each of several schedulers prefers nodes of its own, so that two of them rarely reserve on one
   node at once. Its own nodes come first, whatever their score, then the other nodes. A pod with
   preferences of its own follows those instead.
3. `without_effect` names preferences in other schedulers' keys that count for nothing.

Must not know zones or what else runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from services.scheduler.filter.constraints.predicates import matches, tolerated
from services.scheduler.filter.constraints.scheduler_keys import SchedulerKeys
from services.scheduler.score.strategies.koordinator import LABEL, honours
from services.scheduler.snapshot.node_arrays import ScoreOffsets
from services.scheduler.snapshot.node_info import NodeInfo
from services.scheduler.snapshot.owners import owners_of, strategies
from services.scheduler.snapshot.topology_policy import (
    POD_ANNOTATIONS,
    pod_policy,
    prefers_exclusive,
)
from shared.domain.pod import Constraints, Pod
from shared.domain.policies import BEST_EFFORT, NONE, SINGLE_NUMA_NODE
from shared.domain.scheduler_keys import PREFERS_EXCLUSIVE, asked_by, asked_by_node
from shared.events.cluster_events import NodeObserved
from shared.ledger.state import LedgerNode
from shared.owned.device_request import JOINT_ALLOCATE, PARTITION_SPEC

AFFINITY_WEIGHT, TAINT_WEIGHT, HIGHEST = 2, 3, 100
# Below every score, above the offset of an excluded node.
NOT_PREFERRED = -1_000

_ENCODER = msgspec.msgpack.Encoder()


class Preferences:
    """Raw points by distinct preferences and node, kept until the node's object changes. The least
    recently used preferences are dropped first.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._avoided: set[int] = set()
        self._columns: dict[bytes, npt.NDArray[np.int32]] = {}

    def changed(self, slot: int, node: NodeObserved | None) -> None:
        """Note that the slot has another node object."""
        for column in self._columns.values():
            if slot < column.shape[1]:
                column[:, slot] = -1
        if node is not None and any(taint.effect == "PreferNoSchedule" for taint in node.taints):
            self._avoided.add(slot)
        else:
            self._avoided.discard(slot)

    def of(self, pod: Pod, nodes: Sequence[NodeInfo | None]) -> ScoreOffsets | None:
        """Return points by slot, None if the pod prefers nothing and no node asks to be avoided."""
        constraints = pod.constraints
        if not constraints.preferred_affinity and not self._avoided:
            return None
        affinity, taints = self._raw(constraints, nodes)
        most, worst = int(affinity.max(initial=0)), int(taints.max(initial=0))
        if not most and not worst:
            return None
        offsets = np.zeros(len(nodes), dtype=np.int32)
        if most:
            offsets += AFFINITY_WEIGHT * (HIGHEST * affinity // most)
        if worst:
            offsets += TAINT_WEIGHT * (HIGHEST - HIGHEST * taints // worst)
        return offsets

    def _raw(
        self, constraints: Constraints, nodes: Sequence[NodeInfo | None]
    ) -> npt.NDArray[np.int32]:
        key = _ENCODER.encode((constraints.preferred_affinity, constraints.tolerations))
        column = self._columns.pop(key, np.zeros((2, 0), dtype=np.int32))
        if column.shape[1] < len(nodes):
            new = np.full((2, len(nodes) - column.shape[1]), -1, dtype=np.int32)
            column = np.concatenate([column, new], axis=1)
        for slot in np.flatnonzero(column[0] < 0).tolist():
            node_info = nodes[slot]
            observed = node_info.observed if node_info is not None else None
            column[:, slot] = (0, 0) if observed is None else _points(constraints, observed)
        self._columns[key] = column
        if len(self._columns) > self._limit:
            del self._columns[next(iter(self._columns))]
        return column


def _points(constraints: Constraints, node: NodeObserved) -> tuple[int, int]:
    """Return (sum of the weights of matching preferred terms, number of PreferNoSchedule taints
    that are not tolerated)."""
    affinity = sum(weight for weight, term in constraints.preferred_affinity if matches(term, node))
    avoiding = [taint for taint in node.taints if taint.effect == "PreferNoSchedule"]
    return affinity, sum(not tolerated(taint, constraints.tolerations) for taint in avoiding)


class PreferredNodes:
    """Offsets by slot; None while the scheduler prefers every node alike."""

    def __init__(self) -> None:
        self._has: Callable[[str], bool] | None = None
        self._offsets: ScoreOffsets | None = None

    def share(self, has: Callable[[str], bool] | None) -> None:
        """Prefer the nodes for which `has` is true; None prefers none."""
        self._has, self._offsets = has, None

    def node_entered(self) -> None:
        """Note that a slot has another node."""
        self._offsets = None

    def offsets(self, slots: Sequence[NodeInfo | None]) -> ScoreOffsets | None:
        """Return the points that are added to the nodes' scores."""
        if self._has is None:
            return None
        if self._offsets is None:
            offsets = np.full(len(slots), NOT_PREFERRED, dtype=np.int32)
            for slot, node_info in enumerate(slots):
                if node_info is not None and self._has(node_info.name):
                    offsets[slot] = 0
            self._offsets = offsets
        return self._offsets


def without_effect(pod: Pod, node: LedgerNode | None, strategy: str) -> tuple[str, ...]:
    """Return the keys of the pod and of its node that express a preference without effect, sorted.
    BestEffort has none on a node with policy none. Exclusive zones are a matter of course where
    each pod is in one zone.
    """
    labels = node.observed.labels if node is not None and node.observed is not None else {}
    report = node.basis if node is not None else None
    is_owned = report is not None and owners_of(report).is_owned
    counts = strategies(labels) if is_owned else {}
    asked = [*asked_by(pod.constraints.kept.get(SchedulerKeys.name) or {})]
    asked += [
        entry
        for entry in asked_by_node(labels)
        if not (entry.row.key == LABEL and (honours(labels, strategy) or counts))
    ]
    keys = {row.key for row, ask in asked if ask == "preference"}
    if is_owned and node is not None and node.devices is not None:
        keys -= {JOINT_ALLOCATE, PARTITION_SPEC}
    if (report is None or report.policy != SINGLE_NUMA_NODE) and prefers_exclusive(pod):
        keys.add(PREFERS_EXCLUSIVE)
    if report is not None and report.policy == NONE and pod_policy(pod).policy == BEST_EFFORT:
        keys |= {key for key in POD_ANNOTATIONS if key in pod.annotations}
    return tuple(sorted(keys))
