"""Resources that a node's kubelet gives to no pod, or at which it fails, whatever is free.

Not a field of Kubernetes: nodes are known by resource (`ClusterView.unusable`), because few have
such resources and every pod asks. Four rules fill it:

1. Unhealthy devices. If none of a resource is healthy, the kubelet refuses every container that
   names it, also in an amount of 0. One unhealthy device that lies in a zone is enough for the
   kubelet to look for zones for all of them. If the healthy ones lie in no zone, it finds no hint,
   and policies that require one refuse. The node's object shows it: its capacity is more than it
   offers. Source: kubelet 1.36, devicemanager (devicesToAllocate, deviceHasTopologyAlignment).
2. Hugepages that the Memory Manager has a table of in some zones only. It looks into the table of
   every zone for every Guaranteed container that names them, also in an amount of 0, and the
   kubelet ends by a nil pointer if one lacks it, again at each start while the pod is bound there.
   That happens if the kernel has no folder of hugepages for a zone, as for zones without memory.
   Only the checkpoint shows it: otherwise a zone without pages of a size looks like a zone without
   a table. Source: kubelet 1.36, memorymanager (calculateHints), executed.
3. CPUs and memory of containers of Guaranteed pods with pod-level resources, if the kubelet may be
   older than 1.34: it gives them exclusively, as if the pod had no resources of its own.
4. Sidecars, if the kubelet may be older than 1.29, which refuses such pods.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from services.scheduler.filter.constraints.constraint import (
    Check,
    ClusterView,
    Constraint,
    RefusalReason,
    UnusableResource,
)
from services.scheduler.snapshot.node_arrays import Bools
from shared.domain import qos
from shared.domain.pod import Pod
from shared.domain.policies import RESTRICTED, SINGLE_NUMA_NODE
from shared.domain.refusal import Reason, Refusal
from shared.domain.report import Report
from shared.domain.resources import CPU, Amounts, is_hugepages, is_memory
from shared.ledger.kubelet_rules import possible_rules
from shared.ledger.state import LedgerNode
from shared.ledger.unhealthy import may_lie_in_zones

NONE_HEALTHY = RefusalReason(
    name=Reason.NODE_RESOURCE,
    phrase="Insufficient %r",
    remedy="wait until a device of the node is healthy again, or do not name the resource, also "
    "not in an amount of 0",
)
_HEAL = "wait until the unhealthy devices of the node are healthy again, or restart their plugin"
NO_HINT = {
    SINGLE_NUMA_NODE: RefusalReason(
        name=Reason.NO_SINGLE_ZONE,
        phrase="node(s) had no NUMA zone for %r %s",
        remedy=_HEAL,
    ),
    RESTRICTED: RefusalReason(
        name=Reason.NO_ZONE_SET,
        phrase="node(s) had no set of NUMA zones for %r %s",
        remedy=_HEAL,
    ),
}
NO_TABLE = RefusalReason(
    name=Reason.KUBELET_FAILS,
    phrase="node(s) had a kubelet that would fail: a NUMA zone has no table of %r",
    remedy="ask for hugepages of another size there, or run it on a node whose kernel has them in "
    "every zone",
)
IGNORES_POD_LEVEL = RefusalReason(
    name=Reason.FEATURE,
    phrase="node(s) had a kubelet that ignores pod-level resources (%s)",
    remedy="use nodes with kubelet 1.34 or newer, or set resources of containers only",
)
NO_SIDECARS = RefusalReason(
    name=Reason.FEATURE,
    phrase="node(s) had a kubelet that refuses sidecar containers (%s)",
    remedy="use nodes with kubelet 1.29 or newer, or a pod without restartable init containers",
)
# What pods need of their kubelet besides resources, by name as in `ClusterView.unusable`.
SIDECARS, POD_LEVEL = "sidecars", "pod-level resources"
MAY_LIE_IN_ZONES = "next to unhealthy ones that may lie in zones"


class UnusableResources(Constraint):
    name = "unusableResources"
    reasons = (NONE_HEALTHY, *NO_HINT.values(), NO_TABLE, IGNORES_POD_LEVEL, NO_SIDECARS)
    depends_on = attrgetter("unusable")

    def check(self, pod: Pod, kept: Any, view: ClusterView) -> Check | None:
        refusals = unusable_nodes(pod, view)
        return (lambda node_info: refusals.get(node_info.name)) if refusals else None

    def passing(self, pod: Pod, kept: Any, view: ClusterView) -> Bools | None:
        refusals = unusable_nodes(pod, view)
        return view.columns.all_but(refusals) if refusals else None


def unusable_nodes(pod: Pod, view: ClusterView) -> dict[str, Refusal]:
    """Return the nodes, by name, that the pod cannot use."""
    refusals: dict[str, Refusal] = {}
    for name, asked in _named(pod).items() if view.unusable else ():
        for node, unusable in view.unusable.get(name, {}).items():
            if node not in refusals and unusable.concerns(pod, asked):
                refusals[node] = unusable.reason.refusal(
                    node, unusable.subject, resource=name, asked=asked
                )
    return refusals


def unusable_resources(node: LedgerNode) -> dict[str, UnusableResource]:
    """Return the node's unusable resources."""
    return _unhealthy(node) | _without_tables(node) | _of_old_kubelet(node)


def _unhealthy(node: LedgerNode) -> dict[str, UnusableResource]:
    if node.observed is None or not node.observed.unhealthy:
        return {}
    unusable, report = dict[str, UnusableResource](), node.basis
    for name in node.observed.unhealthy:
        if not node.observed.allocatable.get(name, 0) and not _lists_healthy(report, name):
            unusable[name] = UnusableResource(NONE_HEALTHY, "", "names")
        elif report is not None and report.policy in NO_HINT and may_lie_in_zones(node, name):
            reason = NO_HINT[report.policy]
            unusable[name] = UnusableResource(reason, MAY_LIE_IN_ZONES, "requests")
    return unusable


def _lists_healthy(report: Report | None, name: str) -> bool:
    """A report newer than the node's object may list healthy devices."""
    groups = report.devices or () if report is not None else ()
    return any(group.resource == name and group.ids for group in groups)


def _without_tables(node: LedgerNode) -> dict[str, UnusableResource]:
    """Of nodes with known figures of the Memory Manager's own."""
    zones = node.basis.zones if node.basis is not None else ()
    tables = [zone.free.keys() for zone in zones if zone.free]
    if all(names == tables[0] for names in tables):
        # True for nearly every node, at each of its changes.
        return {}
    everywhere = set(tables[0]).intersection(*tables)
    partial = sorted(set().union(*tables) - everywhere)
    subject = "as a zone keeps no table of it"
    return {
        name: UnusableResource(NO_TABLE, subject, "names, Guaranteed")
        for name in partial
        if is_hugepages(name)
    }


def _of_old_kubelet(node: LedgerNode) -> dict[str, UnusableResource]:
    versions, rules = possible_rules(node)[:2]
    unusable, subject = dict[str, UnusableResource](), ", ".join(versions) or "of unknown version"
    if not all(rule.pod_level == "skipped" for rule in rules) and _pins_natively(node):
        unusable[POD_LEVEL] = UnusableResource(IGNORES_POD_LEVEL, f"kubelet {subject}", "requests")
    if not all(rule.sidecars for rule in rules):
        unusable[SIDECARS] = UnusableResource(NO_SIDECARS, f"kubelet {subject}", "requests")
    return unusable


def _pins_natively(node: LedgerNode) -> bool:
    tracked = node.basis.tracked if node.basis is not None else ()
    return any(name == CPU or is_memory(name) for name in tracked)


def _named(pod: Pod) -> Amounts:
    """The most of each resource that one container names, by name: the kubelet uses limits. Also
    what the pod needs of its kubelet besides resources."""
    named: Amounts = {}
    for container in pod.containers:
        for name, amount in container.limits.items():
            named[name] = max(amount, named.get(name, 0))
        if container.kind == "sidecar":
            named[SIDECARS] = 1
    if pod.pod_level is not None and "Guaranteed" in (pod.qos, qos.of_containers(pod.containers)):
        named[POD_LEVEL] = 1
    return dict(sorted(named.items()))
