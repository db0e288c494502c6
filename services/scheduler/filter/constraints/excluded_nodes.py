"""Excluded nodes: a node is not used for pods of a class after its kubelet rejected one, a policy
denied one, or races for it were lost in a row.

Not a field of Kubernetes: exclusions are learnt (`state/exclusions.py`).
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from services.scheduler.filter.constraints.constraint import (
    Check,
    ClusterView,
    KeepsNothing,
    RefusalReason,
)
from services.scheduler.snapshot.node_info import NodeInfo
from shared.domain.pod import Pod
from shared.domain.refusal import Reason, Refusal

_BY_CAUSE = {
    "rejected": "see why its kubelet rejected the pod; the node is used again when its report "
    "changes, or by `topolog node readmit`",
    "denied": "change the admission policy or the pod; the node is tried again later, or by "
    "`topolog node readmit`",
    "contested": "it is tried again in a moment",
}
EXCLUDED = RefusalReason(
    name=Reason.SET_ASIDE,
    phrase="node(s) were excluded for such pods: %s",
    remedy=_BY_CAUSE["rejected"],
)


class ExcludedNodes(KeepsNothing):
    name = "excludedNodes"
    reasons = (EXCLUDED,)
    depends_on = attrgetter("exclusions.nodes")

    def check(self, pod: Pod, kept: Any, view: ClusterView) -> Check | None:
        exclusions = view.exclusions.of(pod)

        def check(node_info: NodeInfo) -> Refusal | None:
            exclusion = exclusions.get(node_info.name)
            if exclusion is None:
                return None
            subject = f"{exclusion.cause}: {exclusion.detail}"
            return EXCLUDED.refusal(node_info.name, subject, remedy=_BY_CAUSE[exclusion.cause])

        return check if exclusions else None
