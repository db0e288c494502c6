"""Devices of which the kubelet refuses whoever names them, as unhealthy ones that nobody lists
decide for it.

Where none of a resource is healthy it refuses every container that names it, in an amount of 0,
too. And one unhealthy device that lies in a zone is enough for it to look for zones for all of
them: where those that it hands out lie in none, it finds no hint, and policies that insist on one
refuse. The node's object tells of them: it counts more than it offers. Source: kubelet 1.36,
devicemanager (devicesToAllocate, deviceHasTopologyAlignment).
"""

from __future__ import annotations

from services.scheduler.filter.constraints.constraint import Bar
from shared.domain.policies import RESTRICTED, SINGLE_NUMA_NODE
from shared.domain.refusal import Reason
from shared.domain.report import Report
from shared.ledger.state import LedgerNode
from shared.ledger.unhealthy import may_lie_in_zones

_NO_HINT = {SINGLE_NUMA_NODE: Reason.NO_SINGLE_ZONE, RESTRICTED: Reason.NO_ZONE_SET}
_DO_NOT_NAME = "wait until a device of the node is healthy again, or do not name the resource, also not in an amount of 0"
_HEAL = "wait until the unhealthy devices of the node are healthy again, or restart their plugin"
MAY_LIE_IN_ZONES = "beside unhealthy ones that may lie in zones"
_NONE_HEALTHY = Bar(Reason.NODE_RESOURCE, "", _DO_NOT_NAME, "names")


def bars(node: LedgerNode) -> dict[str, Bar]:
    """By resource: whoever names one of which none is healthy, and who asks for some that has no
    hint.
    """
    if node.observed is None or not node.observed.unhealthy:
        return {}
    found, report = dict[str, Bar](), node.basis
    for name in node.observed.unhealthy:
        if not node.observed.allocatable.get(name, 0) and not _listed(report, name):
            found[name] = _NONE_HEALTHY
        elif report is not None and report.policy in _NO_HINT and may_lie_in_zones(node, name):
            found[name] = Bar(_NO_HINT[report.policy], MAY_LIE_IN_ZONES, _HEAL, "asks")
    return found


def _listed(report: Report | None, name: str) -> bool:
    """The report is newer than the node's object: some are healthy."""
    return any(
        group.resource == name and group.ids
        for group in (report.devices or () if report is not None else ())
    )
