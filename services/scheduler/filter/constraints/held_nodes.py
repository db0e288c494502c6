"""Held nodes: a node takes no other pod until an overdue pod is placed (`state/holds.py`).

A pod of a higher priority is not kept away, nor is a pod that is nominated for the node: its
victims were evicted for it. The annotation is read here, so that a pod with one that cannot be read
waits with that reason.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from services.scheduler.filter.constraints.constraint import (
    Check,
    ClusterView,
    Constraint,
    RefusalReason,
)
from services.scheduler.snapshot.node_arrays import Bools
from services.scheduler.snapshot.node_info import NodeInfo
from services.scheduler.state.holds import Hold
from shared.domain import fields
from shared.domain.fields import Json
from shared.domain.hold_after import HOLD_AFTER, hold_after_us
from shared.domain.pod import Pod
from shared.domain.refusal import Reason, Refusal

HELD = RefusalReason(
    name=Reason.HELD,
    phrase="node(s) were held for the overdue pod %s",
    remedy="wait until that pod is placed, or give this pod a higher priority",
)


class HeldNodes(Constraint):
    name = "heldNodes"
    reasons = (HELD,)
    depends_on = attrgetter("holds.by_node")

    def read(self, spec: Json, pod: Pod) -> Any:
        if HOLD_AFTER in pod.annotations and hold_after_us(pod) is None:
            raise fields.refuse(
                f"metadata.annotations[{HOLD_AFTER}]",
                pod.annotations[HOLD_AFTER],
                "write a duration such as 10m or 1h30m",
            )
        return None

    def check(self, pod: Pod, kept: Any, view: ClusterView) -> Check | None:
        holds = _held_from(pod, view)

        def check(node_info: NodeInfo) -> Refusal | None:
            hold = holds.get(node_info.name)
            return None if hold is None else HELD.refusal(node_info.name, hold.key)

        return check if holds else None

    def passing(self, pod: Pod, kept: Any, view: ClusterView) -> Bools | None:
        holds = _held_from(pod, view)
        return view.columns.all_but(holds) if holds else None


def _held_from(pod: Pod, view: ClusterView) -> dict[str, Hold]:
    """The nodes that are held, and not for this pod."""
    nomination = view.cluster_objects.nominations.get(pod.uid)
    return {
        node: hold
        for node, hold in view.holds.by_node.items()
        if hold.uid != pod.uid
        and pod.priority <= hold.priority
        and not (nomination is not None and nomination.node == node)
        and not ((node_info := view.nodes.get(node)) is not None and pod.uid in node_info.claims)
    }
