"""Extended resources that DRA drivers give: Topolog's own scheduler allocates no devices, and says
so instead of "too little".

Semantics: kube-scheduler 1.36 (NodeResourcesFit, KEP-5004). Where a node's allocatable has none of
a resource, a driver may give it by a DeviceClass that names it (`extendedResourceName`), or by the
class's own name behind a fixed prefix. Where a device plugin offers the resource it is the
kubelet's, as ever. Not a field of the pod's spec, but a name among its requests.
"""

from __future__ import annotations

from typing import Any

from services.scheduler.filter.constraints.constraint import Check, ClusterView, KeepsNothing
from services.scheduler.snapshot.node_info import NodeInfo
from shared.domain.pod import Pod
from shared.domain.refusal import Reason, Refusal

BY_CLASS = "deviceclass.resource.kubernetes.io/"


class GivenByDrivers(KeepsNothing):
    name = "givenByDrivers"

    def check(self, pod: Pod, kept: Any, view: ClusterView) -> Check | None:
        found = given(pod, view)
        if not found:
            return None

        def check(node_info: NodeInfo) -> Refusal | None:
            others = by_others(found, node_info)
            named = [f"{name} (DeviceClass {found[name]})" for name in others]
            return (
                Refusal(node_info.name, Reason.GIVEN_BY_DRIVER, ", ".join(named)) if named else None
            )

        return check


def given(pod: Pod, view: ClusterView) -> dict[str, str]:
    """Resources that the pod asks for and drivers may give, sorted -> the class. Asked for every
    decision: a plain loop.
    """
    classes = {each.resource: each.name for each in view.cluster_objects.classes.values()}
    found: dict[str, str] = {}
    for container in pod.containers:
        for name in container.requests:
            if name in classes or name.startswith(BY_CLASS):
                found[name] = classes.get(name) or name.removeprefix(BY_CLASS)
    return {name: found[name] for name in sorted(found)}


def by_others(found: dict[str, str], node_info: NodeInfo) -> tuple[str, ...]:
    """Those of which the node's device plugins offer none."""
    offered = node_info.observed.allocatable if node_info.observed is not None else {}
    return tuple(name for name in found if offered.get(name, 0) <= 0)
