"""A node of the ledger without some of its pods and with others, by the ledger's own rules.

Only this module computes that: the snapshot's own reservations, the search for victims, the order
of pending admissions and the questions of replay ask here. The answer is a node as the fold would
have it if these pods had come and ended; the ledger does not change. When the pods end is left
open, so the node does not know which pod of a name took what when. Must not know its callers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from copy import copy
from typing import NamedTuple

from shared.domain.demand import ContainerDemand
from shared.domain.pod import Pod
from shared.domain.report import Report
from shared.domain.resources import Amounts
from shared.domain.zone_allocation import ZoneAllocation
from shared.ledger.alike import Kind, kind_of
from shared.ledger.charge import charge_zones, landing, narrow
from shared.ledger.charging import alias_of, count_name, ended_of
from shared.ledger.confirmation import held_zones
from shared.ledger.nodes import count, forget_ended
from shared.ledger.recompute import recompute
from shared.ledger.state import NOT_SENT_YET, Charge, LedgerNode, LedgerPod, ZoneAmounts
from shared.ledger.view import listed_of, restore

NOTHING: Mapping[str, tuple[int, ...]] = {}


class Newcomer(NamedTuple):
    """A pod that the log does not have on the node yet: the charge that the fold will make, and its
    request on the node as a whole. Pods of one kind share the zones: read only."""

    charge: Charge
    request: Amounts


def newcomer(
    pod: Pod,
    kind: Kind,
    report: Report | None,
    free_max: ZoneAmounts,
    trusted: Mapping[str, tuple[int, ...]] = NOTHING,
    one_zone: str = "",
    allocation: ZoneAllocation | None = None,
) -> Newcomer:
    """Return the pod, of this kind, on a node with this basis report; only in the `trusted` zones
    if there are some."""
    demand = kind.demand_on(report)
    charge = Charge(uid=pod.uid, key=pod.key, charged_at=0, demand=demand, sent_at=NOT_SENT_YET)
    charge.one_zone, charge.request, charge.allocation = one_zone, kind.request, allocation
    if report is not None and demand:
        charge.possible, charge.zones = landing(demand, report, free_max)
        if trusted and (possible := narrow(charge.possible, trusted)) != charge.possible:
            charge.possible, charge.narrowed = possible, True
            charge.zones = charge_zones(demand, possible, tuple(free_max), report)
    return Newcomer(charge, kind.request)


def newcomer_zones(kind: Kind, report: Report | None, free_max: ZoneAmounts) -> ZoneAmounts:
    """Return what the charge of a pod of this kind takes in each zone: read only."""
    demand = kind.demand_on(report)
    return landing(demand, report, free_max).zones if report is not None and demand else {}


def what_if(
    node: LedgerNode,
    ended_uids: Collection[str],
    pods: Mapping[str, LedgerPod],
    claimant: str = "",
    newcomers: Collection[Newcomer] = (),
) -> LedgerNode:
    """Return the node after the `newcomers` were admitted, the pods of `ended_uids` ended, and the
    claimant's own claim was dropped."""
    changed = copy(node)
    changed.charges = {
        uid: copy(charge) for uid, charge in node.charges.items() if uid not in ended_uids
    }
    changed.name_counts = dict(node.name_counts)
    changed.ended = {key: copy(ended) for key, ended in node.ended.items()}
    changed.requested = dict(node.requested)
    changed.claims = {uid: zones for uid, zones in node.claims.items() if uid != claimant}
    changed.device_claims = {u: cards for u, cards in node.device_claims.items() if u != claimant}
    for charge, request in newcomers:
        arrived = changed.charges[charge.uid] = copy(charge)
        arrived.alias = None if charge.booked else alias_of(node, charge.key)
        count_name(changed, charge.key, 1)
        count(changed, request, 1)
    for uid in sorted(ended_uids):
        charge = node.charges[uid]
        count_name(changed, charge.key, -1)
        count(changed, kind_of(pods[uid].pod).request, -1)
        if charge.demand and not charge.booked:
            if charge.key in changed.ended:
                forget_ended(changed, charge.key)
            changed.ended[charge.key] = ended_of(charge)
            changed.ended[charge.key].is_supposed = True
    recompute(changed)
    return changed


def holdings(node: LedgerNode, charge: Charge) -> ZoneAmounts:
    """Return by zone what a pod of the node holds, or may hold: what its end would give back."""
    if charge.allocation is not None:
        return charge.allocation.zones
    listed = listed_of(node, charge.key) if charge.confirmed else ()
    return held_zones(listed) if listed else charge.zones


def most_without(node: LedgerNode, ended_uids: Collection[str]) -> ZoneAmounts:
    """Return by zone at least the amounts guaranteed free after these pods ended. Cheap: amounts
    that init containers keep unlisted count as free."""
    free = {zone: dict(amounts) for zone, amounts in node.free_min.items()}
    for uid in ended_uids:
        charge = node.charges[uid]
        restore(free, charge.zones)
        if charge.confirmed:
            restore(free, held_zones(listed_of(node, charge.key)))
    return free


def expected(
    demand: tuple[ContainerDemand, ...],
    predicted: Mapping[str, tuple[int, ...]],
    report: Report,
    zones: Collection[int],
) -> ZoneAmounts:
    """Return by zone what a new pod takes if it lands as predicted."""
    return charge_zones(demand, dict(predicted), tuple(zones), report)
