"""Devices of which the kubelet refuses whoever names them, as unhealthy ones that nobody lists decide for it.

Where none of a resource is healthy it refuses every container that names it, in an amount of 0, too. And one unhealthy device
that lies in a zone is enough for it to look for zones for all of them: where those that it hands out lie in none, it finds no
hint, and policies that insist on one refuse. Not a field of Kubernetes: the node's object counts more than it offers. Source:
kubelet 1.36, devicemanager (devicesToAllocate, deviceHasTopologyAlignment).
"""

from __future__ import annotations

from typing import Any

from services.scheduler.deciding.constraints.constraint import Around, Check, KeepsNothing
from shared.domain.pod import Pod
from shared.domain.policies import RESTRICTED, SINGLE_NUMA_NODE
from shared.domain.refusal import Reason, Refusal
from shared.domain.report import Report
from shared.domain.resources import Amounts, is_device
from shared.ledger.state import LedgerNode
from shared.ledger.unhealthy import may_lie_in_zones

_NO_HINT = {SINGLE_NUMA_NODE: Reason.NO_SINGLE_ZONE, RESTRICTED: Reason.NO_ZONE_SET}
_DO_NOT_NAME = "wait until a device of the node is healthy again, or do not name the resource, also not in an amount of 0"
_HEAL = "wait until the unhealthy devices of the node are healthy again, or restart their plugin"
MAY_LIE_IN_ZONES = "beside unhealthy ones that may lie in zones"


class UnhealthyDevices(KeepsNothing):
    name = "unhealthyDevices"

    def check(self, pod: Pod, kept: Any, around: Around) -> Check | None:
        found = barred(pod, around)
        return (lambda facts: found.get(facts.name)) if found else None


def barred(pod: Pod, around: Around) -> dict[str, Refusal]:
    """The nodes that such devices bar for the pod, by name."""
    found: dict[str, Refusal] = {}
    for name, asked in _named(pod).items() if around.unhealthy else ():
        for node, reason in around.unhealthy.get(name, {}).items():
            if reason is Reason.NODE_RESOURCE or asked:
                found.setdefault(node, _refusal(node, name, asked, reason))
    return found


def barring(node: LedgerNode) -> dict[str, Reason]:
    """The resources whose unhealthy devices bar the node: NODE_RESOURCE whoever names them, as none is healthy; another reason
    those who ask for some."""
    if node.observed is None or not node.observed.unhealthy:
        return {}
    found, report = dict[str, Reason](), node.basis
    for name in node.observed.unhealthy:
        if not node.observed.allocatable.get(name, 0) and not _listed(report, name):
            found[name] = Reason.NODE_RESOURCE
        elif report is not None and report.policy in _NO_HINT and may_lie_in_zones(node, name):
            found[name] = _NO_HINT[report.policy]
    return found


def _named(pod: Pod) -> Amounts:
    """The most of each device resource that one container names, by name: the kubelet goes by limits."""
    named: Amounts = {}
    for container in pod.containers:
        for name, amount in container.limits.items():
            if is_device(name):
                named[name] = max(amount, named.get(name, 0))
    return dict(sorted(named.items()))


def _refusal(node: str, name: str, asked: int, reason: Reason) -> Refusal:
    if reason is Reason.NODE_RESOURCE:
        return Refusal(node, reason, resource=name, asked=asked, remedy=_DO_NOT_NAME)
    return Refusal(node, reason, MAY_LIE_IN_ZONES, name, asked=asked, remedy=_HEAL)


def _listed(report: Report | None, name: str) -> bool:
    """The report is newer than the node's object: some are healthy."""
    return any(group.resource == name and group.ids for group in (report.devices or () if report is not None else ()))
