"""Devices of which the kubelet refuses whoever names them, as unhealthy ones that nobody lists decide for it.

Where none of a resource is healthy it refuses every container that names it, in an amount of 0, too. And one unhealthy device
that lies in a zone is enough for it to look for zones for all of them: where those that it hands out lie in none, it finds no
hint, and policies that insist on one refuse. Not a field of Kubernetes: the node's object counts more than it offers. Source:
kubelet 1.36, devicemanager (devicesToAllocate, deviceHasTopologyAlignment).
"""

from __future__ import annotations

from typing import Any

from services.scheduler.deciding.constraints.constraint import Around, Check, KeepsNothing
from services.scheduler.deciding.node_facts import NodeFacts
from shared.domain.pod import Pod
from shared.domain.policies import RESTRICTED, SINGLE_NUMA_NODE
from shared.domain.refusal import Reason, Refusal
from shared.domain.report import Report
from shared.domain.resources import Amounts, is_device
from shared.ledger.unhealthy import may_lie_in_zones

_NO_HINT = {SINGLE_NUMA_NODE: Reason.NO_SINGLE_ZONE, RESTRICTED: Reason.NO_ZONE_SET}
_NONE_HEALTHY = "wait until a device of the node is healthy again, or do not name the resource, also not in an amount of 0"
_HEAL = "wait until the unhealthy devices of the node are healthy again, or restart their plugin"
MAY_LIE_IN_ZONES = "beside unhealthy ones that may lie in zones"


class UnhealthyDevices(KeepsNothing):
    name = "unhealthyDevices"

    def check(self, pod: Pod, kept: Any, around: Around) -> Check | None:
        found = barred(pod, around)
        return (lambda facts: found.get(facts.name)) if found else None


def barred(pod: Pod, around: Around) -> dict[str, Refusal]:
    """The nodes that such devices bar for the pod, by name."""
    if not around.unhealthy:
        return {}
    named = _named(pod)
    nodes = {node for name in named for node in around.unhealthy.get(name, ())}
    refusals = {node: _refusal(around.nodes[node], named) for node in nodes}
    return {node: refusal for node, refusal in refusals.items() if refusal is not None}


def _named(pod: Pod) -> Amounts:
    """The most of each device resource that one container names: the kubelet goes by limits."""
    named: Amounts = {}
    for container in pod.containers:
        for name, amount in container.limits.items():
            if is_device(name):
                named[name] = max(amount, named.get(name, 0))
    return named


def _refusal(facts: NodeFacts, named: Amounts) -> Refusal | None:
    node, report = facts.observed, facts.report
    if node is None:
        return None
    for name in sorted(named.keys() & node.unhealthy.keys()):
        if not node.allocatable.get(name, 0) and not _listed(report, name):
            return Refusal(facts.name, Reason.NODE_RESOURCE, resource=name, asked=named[name], remedy=_NONE_HEALTHY)
        if named[name] and report is not None and report.policy in _NO_HINT and may_lie_in_zones(facts.ledger, name):
            reason, asked = _NO_HINT[report.policy], named[name]
            return Refusal(facts.name, reason, MAY_LIE_IN_ZONES, name, asked=asked, remedy=_HEAL)
    return None


def _listed(report: Report | None, name: str) -> bool:
    """The report is newer than the node's object: some are healthy."""
    return any(group.resource == name and group.ids for group in (report.devices or () if report is not None else ()))
