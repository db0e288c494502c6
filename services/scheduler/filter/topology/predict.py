"""Where pods will most likely stand on a plain node: each container in the lowest zone that holds
all it asks for.

That is what hints and merge come to under every policy but none, as long as every manager prefers
single zones: then nobody need be asked. A node is plain while nothing on it lies, or may lie, over
several zones, and no init container has anything to do with it, and while amounts are all that
providers look at. Kept as long as the node's facts stand; an own reservation only takes its own.

Where the kubelet will most likely put the pod's parts: hints and merge, as if all who are on
their way came in the order in which they were reserved. A prediction narrows nothing: charges stay
what they are.
"""

from __future__ import annotations

from collections.abc import Sequence

from services.scheduler.filter.topology.kubelet_search import kubelet_search_of
from services.scheduler.snapshot.node_info import NodeInfo
from services.scheduler.snapshot.pod_class import Plan
from services.scheduler.snapshot.zone_sizes import is_plain
from shared.domain import policies
from shared.domain.demand import ContainerDemand, peak
from shared.domain.policies import NONE, SINGLE_NUMA_NODE
from shared.domain.resources import Amounts
from shared.hints.registry import amounts_are_all
from shared.hints.request import request_of
from shared.kubelet.masks import nodes_of
from shared.ledger.kubelet_states import order_of_ends_unknown
from shared.ledger.state import Charge, LedgerNode, ZoneAmounts
from shared.ledger.view import subtract

Zones = list[tuple[int, Amounts]]
"""(id, free amounts), ascending."""


class ExpectedZones:
    """The zones as those on their way will leave them; None where the node is not plain. Kept while
    `ledger` and `claims` are the facts' own, and `own` counts their reservations. `latest`: where
    the last demand asked for would go."""

    __slots__ = ("claims", "latest", "ledger", "own", "zones")

    def __init__(
        self, ledger: LedgerNode, claims: dict[str, ZoneAmounts], own: int, zones: Zones | None
    ) -> None:
        self.ledger, self.claims, self.own, self.zones = ledger, claims, own, zones
        self.latest: tuple[Sequence[ContainerDemand], list[int] | None] = (), None


def lowest_zones(node_info: NodeInfo, plan: Plan) -> tuple[int, ...] | None:
    """The zone of each container of the plan's demand; None where that is for hints and merge to
    say.
    """
    if not amounts_are_all():
        return None
    if (
        plan.inits
        or plan.whole_cores
        or plan.rule != node_info.rule
        or node_info.grouped_zones
        or node_info.rule.policy == NONE
    ):
        return None
    if any(part.zeros for part in plan.demand):
        return None
    expected = _expected(node_info)
    zones = expected.zones
    if zones is None:
        return None
    places = _places(zones, plan.demand, plan.rule.scope)
    expected.latest = plan.demand, places
    return tuple([zones[at][0] for at in places]) if places is not None else None


def note_reserved(node_info: NodeInfo, charge: Charge) -> None:
    """An own reservation takes what was expected."""
    kept: ExpectedZones | None = node_info.expected_zones
    if kept is None:
        return
    if not _current(kept, node_info, len(node_info.assumed) - 1):
        node_info.expected_zones = None
        return
    if kept.zones is not None:
        places = (
            kept.latest[1]
            if kept.latest[0] is charge.demand
            else _places(kept.zones, charge.demand, node_info.rule.scope)
        )
        kept.zones = kept.zones if _taken(kept.zones, charge.demand, places) else None
    kept.own, kept.latest = len(node_info.assumed), ((), None)


def _expected(node_info: NodeInfo) -> ExpectedZones:
    kept: ExpectedZones | None = node_info.expected_zones
    if kept is None or not _current(kept, node_info, len(node_info.assumed)):
        node_info.expected_zones = kept = ExpectedZones(
            node_info.ledger, node_info.claims, len(node_info.assumed), _zones(node_info)
        )
    return kept


def _current(kept: ExpectedZones, node_info: NodeInfo, own: int) -> bool:
    return kept.ledger is node_info.ledger and kept.claims is node_info.claims and kept.own == own


def _zones(node_info: NodeInfo) -> Zones | None:
    node, report = node_info.ledger, node_info.report
    if (
        report is None
        or not is_plain(report)
        or node.freed
        or (node.listed is None and node_info.rule.policy != SINGLE_NUMA_NODE)
    ):
        return None
    free = node_info.free_max
    if node_info.claims:
        free = {zone: dict(amounts) for zone, amounts in free.items()}
        for claim in node_info.claims.values():
            subtract(free, claim)
    unproven = [charge for charge in node_info.charges() if charge.demand and not charge.confirmed]
    coming = [
        charge
        for charge in unproven
        if not (charge.confirmed_zones and charge.confirmed_boot == report.boot_id)
    ]
    if coming and order_of_ends_unknown(node):
        return None
    zones, scope = sorted(free.items()), node_info.rule.scope
    for charge in coming:
        if not _comes(node, charge) or not _taken(
            zones, charge.demand, _places(zones, charge.demand, scope)
        ):
            return None
    return zones


def _comes(node: LedgerNode, charge: Charge) -> bool:
    """False for a pod that is listed in part, or goes where devices are of which it asks for none."""
    if any(part.zeros for part in charge.demand):
        return False
    listed = (node.listed or {}).get(charge.key)
    return not listed or charge.alias is not None or not any(placement.held for placement in listed)


def _taken(zones: Zones, demand: Sequence[ContainerDemand], places: Sequence[int] | None) -> bool:
    """Take what the pod asks for out of these zones, each as a new value; False where it is not
    plain.
    """
    if places is None or any(part.kind == "init" for part in demand):
        return False
    for at, part in zip(places, demand, strict=True):
        zone, free = zones[at]
        left = dict(free)
        for name, amount in part.amounts.items():
            left[name] -= amount
        zones[at] = zone, left
    return True


def _places(zones: Zones, demand: Sequence[ContainerDemand], scope: str) -> list[int] | None:
    """Positions in `zones` container by container; None where one finds no zone, or containers
    before it may change that.
    """
    if scope == "pod" and len(demand) > 1:
        if any(part.kind != "app" for part in demand):
            return None
        at = _lowest(zones, peak(demand), {})
        return [at] * len(demand) if at >= 0 else None
    found: list[int] = []
    taken: dict[int, Amounts] = {}
    last = len(demand) - 1
    for number, part in enumerate(demand):
        at = _lowest(zones, part.amounts, taken)
        if at < 0:
            return None
        found.append(at)
        if number < last:
            before = taken.setdefault(at, {})
            for name, amount in part.amounts.items():
                before[name] = before.get(name, 0) + amount
    return found


def _lowest(zones: Zones, asked: Amounts, taken: dict[int, Amounts]) -> int:
    """-1 where no zone holds it alone. Runs for every reservation: plain loops."""
    wanted = asked.items()
    for at, (_, free) in enumerate(zones):
        before = taken.get(at)
        for name, amount in wanted:
            if free.get(name, 0) - (before.get(name, 0) if before else 0) < amount:
                break
        else:
            return at
    return -1


Predicted = dict[str, tuple[int, ...]]


def predict(node_info: NodeInfo, plan: Plan) -> Predicted:
    """Container -> zone ids, for the containers that pin something; empty where nothing can be
    said.
    """
    if plan.mode == "free" or plan.rule.policy == policies.NONE:
        return {}
    lowest = lowest_zones(node_info, plan)
    if lowest is not None:
        return {name: (zone,) for name, zone in zip(plan.names, lowest, strict=True)}
    return by_hints(node_info, plan)


def by_hints(node_info: NodeInfo, plan: Plan) -> Predicted:
    """The same for any node."""
    admitted = kubelet_search_of(node_info, plan).likely(request_of(plan.demand))
    if admitted is None or not admitted.zones:
        return {}
    whole = node_info.zone_ids if len(node_info.zone_ids) == 1 else ()
    zones = [nodes_of(mask) or whole for mask in admitted.zones]
    return dict(zip(plan.names, zones, strict=True)) if all(zones) else {}
