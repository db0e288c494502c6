"""Resources of which a node's kubelet gives nobody, or fails where somebody asks, whatever is free.

Not a field of Kubernetes: nodes are barred by what was learnt of them, by resource
(`Around.barred`), as few are and every pod asks. Which, and why, is for the rules in `_RULES`.

Devices of which the kubelet refuses whoever names them, as unhealthy ones that nobody lists
decide for it.

Where none of a resource is healthy it refuses every container that names it, in an amount of 0,
too. And one unhealthy device that lies in a zone is enough for it to look for zones for all of
them: where those that it hands out lie in none, it finds no hint, and policies that insist on one
refuse. The node's object tells of them: it counts more than it offers. Source: kubelet 1.36,
devicemanager (devicesToAllocate, deviceHasTopologyAlignment).

Hugepages that the Memory Manager keeps a table of in some zones, and none in others.

It looks into the table of every zone for every Guaranteed container that names them, in an amount
of 0, too, and the kubelet ends by a nil pointer where one lacks it, again at each start while the
pod is bound there. So it is with zones for which the kernel has no folder of hugepages, as those
without memory may be. Only the checkpoint tells: elsewhere a zone without pages of a size looks
like one without a table. Source: kubelet 1.36, memorymanager (calculateHints), executed.
"""

from __future__ import annotations

from typing import Any

from services.scheduler.filter.constraints.constraint import (
    Check,
    ClusterView,
    KeepsNothing,
    UnusableResource,
)
from shared.domain.pod import Pod
from shared.domain.policies import RESTRICTED, SINGLE_NUMA_NODE
from shared.domain.refusal import Reason, Refusal
from shared.domain.report import Report
from shared.domain.resources import Amounts, is_hugepages
from shared.ledger.state import LedgerNode
from shared.ledger.unhealthy import may_lie_in_zones


class UnusableResources(KeepsNothing):
    name = "unusableResources"

    def check(self, pod: Pod, kept: Any, view: ClusterView) -> Check | None:
        found = unusable_nodes(pod, view)
        return (lambda events: found.get(events.name)) if found else None


def unusable_nodes(pod: Pod, view: ClusterView) -> dict[str, Refusal]:
    """The nodes that are barred for the pod, by name."""
    found: dict[str, Refusal] = {}
    for name, asked in _named(pod).items() if view.unusable else ():
        for node, bar in view.unusable.get(name, {}).items():
            if bar.concerns(pod, asked):
                found.setdefault(
                    node,
                    Refusal(node, bar.reason, bar.subject, name, asked=asked, remedy=bar.remedy),
                )
    return found


def unusable_resources(node: LedgerNode) -> dict[str, UnusableResource]:
    """The resources that the node is barred for."""
    found: dict[str, UnusableResource] = {}
    for rule in _RULES:
        found |= rule(node)
    return found


def _named(pod: Pod) -> Amounts:
    """The most of each resource that one container names, by name: the kubelet goes by limits."""
    named: Amounts = {}
    for container in pod.containers:
        for name, amount in container.limits.items():
            named[name] = max(amount, named.get(name, 0))
    return dict(sorted(named.items()))


_NO_HINT = {SINGLE_NUMA_NODE: Reason.NO_SINGLE_ZONE, RESTRICTED: Reason.NO_ZONE_SET}
_DO_NOT_NAME = "wait until a device of the node is healthy again, or do not name the resource, also not in an amount of 0"
_HEAL = "wait until the unhealthy devices of the node are healthy again, or restart their plugin"
MAY_LIE_IN_ZONES = "beside unhealthy ones that may lie in zones"
_NONE_HEALTHY = UnusableResource(Reason.NODE_RESOURCE, "", _DO_NOT_NAME, "names")


def barred_by_unhealthy_devices(node: LedgerNode) -> dict[str, UnusableResource]:
    """By resource: whoever names one of which none is healthy, and who asks for some that has no
    hint.
    """
    if node.observed is None or not node.observed.unhealthy:
        return {}
    found, report = dict[str, UnusableResource](), node.basis
    for name in node.observed.unhealthy:
        if not node.observed.allocatable.get(name, 0) and not _listed(report, name):
            found[name] = _NONE_HEALTHY
        elif report is not None and report.policy in _NO_HINT and may_lie_in_zones(node, name):
            found[name] = UnusableResource(_NO_HINT[report.policy], MAY_LIE_IN_ZONES, _HEAL, "asks")
    return found


def _listed(report: Report | None, name: str) -> bool:
    """The report is newer than the node's object: some are healthy."""
    return any(
        group.resource == name and group.ids
        for group in (report.devices or () if report is not None else ())
    )


_NO_TABLE = UnusableResource(
    Reason.KUBELET_FAILS,
    "as a zone keeps no table of it",
    "ask for hugepages of another size there, or run it on a node whose kernel has them in every zone",
    "names, Guaranteed",
)


def barred_by_memory_tables(node: LedgerNode) -> dict[str, UnusableResource]:
    """By resource; of nodes whose Memory Manager's own figures are known."""
    tables = [
        zone.free.keys()
        for zone in (node.basis.zones if node.basis is not None else ())
        if zone.free
    ]
    if all(names == tables[0] for names in tables):  # of nearly every node, at each of its changes
        return {}
    everywhere = set(tables[0]).intersection(*tables)
    return {
        name: _NO_TABLE for name in sorted(set().union(*tables) - everywhere) if is_hugepages(name)
    }


_RULES = (barred_by_unhealthy_devices, barred_by_memory_tables)
