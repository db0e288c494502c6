"""Preferences of other schedulers' keys that a placement ignores."""

from __future__ import annotations

from collections.abc import Mapping

from services.scheduler.filter.constraints.scheduler_keys import SchedulerKeys
from services.scheduler.score.strategies.koordinator import LABEL, honours
from shared.domain.pod import Pod
from shared.domain.scheduler_keys import asked_by, asked_by_node


def without_effect(pod: Pod, labels: Mapping[str, str], strategy: str) -> tuple[str, ...]:
    """Return the keys of the pod and of its node that express a preference without effect, sorted.
    `labels` are the node's.
    """
    asked = [*asked_by(pod.constraints.kept.get(SchedulerKeys.name) or {})]
    asked += [
        entry
        for entry in asked_by_node(labels)
        if entry.row.key != LABEL or not honours(labels, strategy)
    ]
    return tuple(sorted({row.key for row, ask in asked if ask == "preference"}))
