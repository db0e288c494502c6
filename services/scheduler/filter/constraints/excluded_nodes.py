"""Nodes that are set aside for pods like this one: kubelets that rejected one, policies that denied
one, races lost in a row.

Not a field of Kubernetes: what was learnt (`exclusion_proposals`) bars nodes as a constraint does.
"""

from __future__ import annotations

from typing import Any

from services.scheduler.filter.constraints.constraint import Check, ClusterView, KeepsNothing
from services.scheduler.snapshot.node_info import NodeInfo
from shared.domain.pod import Pod
from shared.domain.refusal import Reason, Refusal

_REMEDIES = {
    "rejected": "see why its kubelet rejected it; the node is used again when its report changes, or by `topolog node readmit`",
    "denied": "change the admission policy or the pod; it is tried again later, or by `topolog node readmit`",
    "contested": "it is tried again in a moment",
}


class SetAside(KeepsNothing):
    name = "setAside"

    def check(self, pod: Pod, kept: Any, view: ClusterView) -> Check | None:
        held = view.exclusions.of(pod)

        def check(node_info: NodeInfo) -> Refusal | None:
            aside = held.get(node_info.name)
            if aside is None:
                return None
            return Refusal(
                node_info.name,
                Reason.SET_ASIDE,
                f"{aside.cause}: {aside.detail}",
                remedy=_REMEDIES[aside.cause],
            )

        return check if held else None
