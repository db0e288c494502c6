"""What if: a node of the ledger without some of its pods and with others, by the ledger's own
rules.

Nobody else takes a pod from a node, works out what a newcomer is charged, or gives a claim back:
the overlay of own reservations, the search for victims, the order of arrival and the replay's
questions ask here. The answer is a node as the fold would hold it had these pods come and ended;
the ledger itself stays as it is. When they end is not said: nobody can tell then who of that name
took what when. Must not know who asks.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from copy import copy
from typing import NamedTuple

from shared.domain.demand import ContainerDemand
from shared.domain.pod import Pod
from shared.domain.report import Report
from shared.domain.resources import Amounts
from shared.ledger.alike import Kind, kind_of
from shared.ledger.charge import charge_zones, narrow
from shared.ledger.charging import alias_of, bears, ended_of
from shared.ledger.landing import landing
from shared.ledger.nodes import count, forget_ended
from shared.ledger.proof import held_zones
from shared.ledger.recompute import recompute
from shared.ledger.state import NOT_SENT_YET, Charge, LedgerNode, LedgerPod, ZoneAmounts
from shared.ledger.view import listed_of, restore

NOTHING: Mapping[str, tuple[int, ...]] = {}


class Newcomer(NamedTuple):
    """A pod that the log does not have on the node yet: the charge that its fold will make, and
    what it asks of the node as a whole. Its zones are shared by alike newcomers: read only."""

    charge: Charge
    request: Amounts


def newcomer(
    pod: Pod,
    kind: Kind,
    report: Report | None,
    free_max: ZoneAmounts,
    trusted: Mapping[str, tuple[int, ...]] = NOTHING,
) -> Newcomer:
    """The pod, which is of this kind, on a node with this basis report and this upper bound; only
    in the `trusted` zones where some are given."""
    demand = kind.demand(report.tracked) if report is not None else ()
    charge = Charge(uid=pod.uid, key=pod.key, charged_at=0, demand=demand, sent_at=NOT_SENT_YET)
    if report is not None and demand:
        charge.possible, charge.zones = landing(demand, report, free_max)
        if trusted and (possible := narrow(charge.possible, trusted)) != charge.possible:
            charge.possible, charge.narrowed = possible, True
            charge.zones = charge_zones(demand, possible, tuple(free_max), report)
    return Newcomer(charge, kind.request)


def what_if(
    node: LedgerNode,
    gone: Collection[str],
    pods: Mapping[str, LedgerPod],
    claimant: str = "",
    come: Collection[Newcomer] = (),
) -> LedgerNode:
    """The node once newcomers have come, the pods `gone` (uids on it) have ended and the claimant's
    own claim is given back.
    """
    left = copy(node)
    left.charges = {uid: copy(charge) for uid, charge in node.charges.items() if uid not in gone}
    left.name_counts = dict(node.name_counts)
    left.ended = {key: copy(ended) for key, ended in node.ended.items()}
    left.requested = dict(node.requested)
    left.claims = {uid: zones for uid, zones in node.claims.items() if uid != claimant}
    for charge, request in come:
        left.charges[charge.uid] = arrived = copy(charge)
        arrived.alias = alias_of(node, charge.key)
        bears(left, charge.key, 1)
        count(left, request, 1)
    for uid in sorted(gone):
        charge = node.charges[uid]
        bears(left, charge.key, -1)
        count(left, kind_of(pods[uid].pod).request, -1)
        if charge.demand:
            if charge.key in left.ended:
                forget_ended(left, charge.key)
            left.ended[charge.key] = ended_of(charge)
    recompute(left)
    return left


def holdings(node: LedgerNode, charge: Charge) -> ZoneAmounts:
    """Zone -> what a pod of the node holds, or may hold, there: what its end would give back."""
    listed = listed_of(node, charge.key) if charge.confirmed else ()
    return held_zones(listed) if listed else charge.zones


def most_without(node: LedgerNode, gone: Collection[str]) -> ZoneAmounts:
    """Zone -> at least what is certainly free once these have ended, cheap: it leaves out what init
    containers keep that no listing gives back."""
    room = {zone: dict(amounts) for zone, amounts in node.free_min.items()}
    for uid in gone:
        charge = node.charges[uid]
        restore(room, charge.zones)
        if charge.confirmed:
            restore(room, held_zones(listed_of(node, charge.key)))
    return room


def expected(
    demand: tuple[ContainerDemand, ...],
    predicted: Mapping[str, tuple[int, ...]],
    report: Report,
    zones: Collection[int],
) -> ZoneAmounts:
    """Zone -> what a newcomer takes there if it lands as predicted."""
    return charge_zones(demand, dict(predicted), tuple(zones), report)
