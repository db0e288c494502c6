"""Does a newcomer leave the nominee of another scheduler a zone? Cheap and sufficient, by what is
surely free once those that are being deleted have ended: the room that they were evicted for.

Where no zone holds the nominee as it is, by its containers' amounts together, nobody can tell which
zone is meant for it, and none is kept. Must not know who nominates, nor priorities.
"""

from __future__ import annotations

from collections.abc import Callable

from services.scheduler.snapshot.node_info import NodeInfo
from shared.domain.pod import Pod
from shared.domain.policies import RESTRICTED, SINGLE_NUMA_NODE
from shared.domain.resources import Amounts
from shared.ledger.alike import kind_of
from shared.ledger.state import ZoneAmounts
from shared.ledger.view import subtract
from shared.ledger.what_if import most_without, newcomer

NONE_TAKEN: Amounts = {}


def leaves_a_zone(
    node_info: NodeInfo, pod: Pod, nominee: Amounts, leaves: Callable[[str], bool]
) -> bool:
    """`nominee` is what it takes of one zone where all of that is tracked; `leaves` says of a uid
    whether it is being deleted.
    """
    if node_info.report is None or node_info.rule.policy not in (SINGLE_NUMA_NODE, RESTRICTED):
        return True
    wanted = {name: amount for name, amount in nominee.items() if name in node_info.report.tracked}
    charge = newcomer(pod, kind_of(pod), node_info.report, node_info.free_max).charge
    if not wanted or not charge.zones:
        return True
    room = _once_they_ended(node_info, leaves)
    fitting = [zone for zone, held in room.items() if _holds(held, wanted, NONE_TAKEN)]
    one_each = (
        node_info.rule.policy == SINGLE_NUMA_NODE
    )  # under restricted a container may take several zones
    if not fitting or (one_each and len(fitting) > len(charge.demand)):
        return True
    return any(_holds(room[zone], wanted, charge.zones.get(zone, NONE_TAKEN)) for zone in fitting)


def _once_they_ended(node_info: NodeInfo, leaves: Callable[[str], bool]) -> ZoneAmounts:
    room = most_without(node_info.ledger, [uid for uid in node_info.ledger.charges if leaves(uid)])
    for own in node_info.overlay.values():
        subtract(room, own.charge.zones)
    return room


def _holds(zone: Amounts, wanted: Amounts, beside: Amounts) -> bool:
    return all(zone.get(name, 0) >= amount + beside.get(name, 0) for name, amount in wanted.items())
