"""Extended resources that DRA drivers give. Topolog's own scheduler allocates no devices, and says
so instead of "Insufficient".

Semantics: kube-scheduler 1.36 (NodeResourcesFit, KEP-5004). If a node's allocatable has none of a
resource, a driver may give it by a DeviceClass that names it (`extendedResourceName`), or by the
class's own name behind a fixed prefix. If a device plugin offers the resource, it is the kubelet's
as usual. Not a field of the pod's spec, but a name among its requests.
"""

from __future__ import annotations

from functools import reduce
from operator import and_, attrgetter
from typing import Any

from services.scheduler.filter.constraints.constraint import (
    Check,
    ClusterView,
    Constraint,
    RefusalReason,
)
from services.scheduler.snapshot.node_arrays import Bools
from services.scheduler.snapshot.node_columns import NodeColumns
from services.scheduler.snapshot.node_info import NodeInfo
from shared.domain.pod import Pod
from shared.domain.refusal import Reason, Refusal

BY_CLASS = "deviceclass.resource.kubernetes.io/"

BY_DRIVER = RefusalReason(
    name=Reason.GIVEN_BY_DRIVER,
    phrase="node(s) only had a DRA driver for %s",
    remedy="have kube-scheduler place such pods, with Topolog as its extender (docs/extender.md)",
)


class GivenByDrivers(Constraint):
    name = "givenByDrivers"
    reasons = (BY_DRIVER,)
    depends_on = attrgetter("nodes")

    def check(self, pod: Pod, kept: Any, view: ClusterView) -> Check | None:
        classes = given(pod, view)
        if not classes:
            return None

        def check(node_info: NodeInfo) -> Refusal | None:
            resources = by_others(classes, node_info)
            if not resources:
                return None
            named = [f"{name} (DeviceClass {classes[name]})" for name in resources]
            return BY_DRIVER.refusal(node_info.name, ", ".join(named))

        return check

    def passing(self, pod: Pod, kept: Any, view: ClusterView) -> Bools | None:
        classes = given(pod, view)
        if not classes:
            return None
        return reduce(and_, (_offering(name, view.columns) for name in classes))


def _offering(resource: str, columns: NodeColumns) -> Bools:
    """Return by slot which nodes' device plugins offer the resource."""
    return columns.observed(
        ("offers", resource), lambda node: True if node.allocatable.get(resource, 0) > 0 else None
    ).exists()


def given(pod: Pod, view: ClusterView) -> dict[str, str]:
    """Return the resources that the pod requests and drivers may give, sorted -> the class. Runs
    for every decision: a plain loop.
    """
    device_classes = view.cluster_objects.classes.values()
    classes = {item.resource: item.name for item in device_classes} if device_classes else {}
    by_resource: dict[str, str] = {}
    for container in pod.containers:
        for name in container.requests:
            if name in classes or name.startswith(BY_CLASS):
                by_resource[name] = classes.get(name) or name.removeprefix(BY_CLASS)
    return {name: by_resource[name] for name in sorted(by_resource)} if by_resource else {}


def by_others(classes: dict[str, str], node_info: NodeInfo) -> tuple[str, ...]:
    """Return the resources of which the node's device plugins offer none."""
    offered = node_info.observed.allocatable if node_info.observed is not None else {}
    return tuple(name for name in classes if offered.get(name, 0) <= 0)
