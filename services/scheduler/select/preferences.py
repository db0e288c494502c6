"""Preferences of other schedulers' keys that a placement ignores."""

from __future__ import annotations

from services.scheduler.filter.constraints.scheduler_keys import SchedulerKeys
from services.scheduler.score.strategies.koordinator import LABEL, honours
from services.scheduler.snapshot.owners import owners_of, strategies
from services.scheduler.snapshot.topology_policy import (
    POD_ANNOTATIONS,
    pod_policy,
    prefers_exclusive,
)
from shared.domain.pod import Pod
from shared.domain.policies import BEST_EFFORT, NONE, SINGLE_NUMA_NODE
from shared.domain.scheduler_keys import PREFERS_EXCLUSIVE, asked_by, asked_by_node
from shared.ledger.state import LedgerNode


def without_effect(pod: Pod, node: LedgerNode | None, strategy: str) -> tuple[str, ...]:
    """Return the keys of the pod and of its node that express a preference without effect, sorted.
    BestEffort has none on a node with policy none. Exclusive zones are a matter of course where
    each pod is in one zone.
    """
    labels = node.observed.labels if node is not None and node.observed is not None else {}
    report = node.basis if node is not None else None
    counts = strategies(labels) if report is not None and owners_of(report).is_owned else {}
    asked = [*asked_by(pod.constraints.kept.get(SchedulerKeys.name) or {})]
    asked += [
        entry
        for entry in asked_by_node(labels)
        if not (entry.row.key == LABEL and (honours(labels, strategy) or counts))
    ]
    keys = {row.key for row, ask in asked if ask == "preference"}
    if (report is None or report.policy != SINGLE_NUMA_NODE) and prefers_exclusive(pod):
        keys.add(PREFERS_EXCLUSIVE)
    if report is not None and report.policy == NONE and pod_policy(pod).policy == BEST_EFFORT:
        keys |= {key for key in POD_ANNOTATIONS if key in pod.annotations}
    return tuple(sorted(keys))
