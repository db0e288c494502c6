"""Predict in which zones the kubelet will put a pod, if pending pods come in the order of their
reservations. A prediction narrows nothing: charges do not change.

1. A node is plain as long as nothing on it lies, or may lie, over several zones, no init container
   requests zones, and amounts are all that providers look at. There each container takes the lowest
   zone that holds all it requests: hints and merge come to that under every policy except none.
2. On any other node the hint providers predict (`by_hints`).

The expected zones are kept as long as the node stays as it is; an assumed pod takes its own.

A prediction is certain only if every order in which other pods and ends may reach the kubelet leads
to the same zones:

1. On a plain node each container takes the lowest zone that holds all it requests (`predict`). What
   a zone has free then is at least `free_min` and at most `free_max`. If both lead to the same
   zones, no lower zone can hold the pod, and the predicted ones surely do.
2. Under other policies than single-numa-node a pod that comes in another order may lie over several
   zones, whose memory no pod gets alone then. So the state must be known exactly.
3. Nothing is certain of another node, of a kubelet of another version, or without placements in its
   reports.

What happens after the decision is not known here; `shared/ledger/certainty.py` follows it.
"""

from __future__ import annotations

from collections.abc import Sequence

from services.scheduler.filter.topology.kubelet_search import kubelet_search_of
from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.node_info import NodeInfo
from services.scheduler.snapshot.pod_class import BY_KUBELET, Plan
from shared.domain.demand import ContainerDemand, peak
from shared.domain.policies import NONE, SINGLE_NUMA_NODE
from shared.domain.resources import Amounts
from shared.hints.registry import amounts_are_all
from shared.hints.request import request_of
from shared.kubelet.masks import nodes_of
from shared.ledger.device_views import in_doubt
from shared.ledger.kubelet_rules import is_other_version
from shared.ledger.kubelet_states import order_of_ends_unknown
from shared.ledger.state import Charge, LedgerNode, ZoneAmounts
from shared.ledger.view import subtract

Predicted = dict[str, tuple[int, ...]]
# (zone id, free amounts), ascending.
Zones = list[tuple[int, Amounts]]


def predict(node_info: NodeInfo, plan: Plan) -> Predicted:
    """Return container -> zone ids for containers that pin something; {} if unpredictable."""
    if plan.mode not in BY_KUBELET or plan.rule.policy == NONE:
        return {}
    lowest = lowest_zones(node_info, plan)
    if lowest is not None:
        return {name: (zone,) for name, zone in zip(plan.names, lowest, strict=True)}
    return by_hints(node_info, plan)


def by_hints(node_info: NodeInfo, plan: Plan) -> Predicted:
    """The same for any node."""
    outcome = kubelet_search_of(node_info, plan).likely(request_of(plan.demand))
    if outcome is None or not outcome.zones:
        return {}
    only_zone = node_info.zone_ids if len(node_info.zone_ids) == 1 else ()
    zones = [nodes_of(mask) or only_zone for mask in outcome.zones]
    return dict(zip(plan.names, zones, strict=True)) if all(zones) else {}


class ExpectedZones:
    """The zones as pending pods will leave them; None if the node is not plain.

    Kept as long as `ledger` and `claims` are the node's own; `assumed` counts the pods among them.
    `latest` is where the last requested demand would go.
    """

    __slots__ = ("assumed", "claims", "latest", "ledger", "zones")

    def __init__(
        self, ledger: LedgerNode, claims: dict[str, ZoneAmounts], assumed: int, zones: Zones | None
    ) -> None:
        self.ledger, self.claims, self.assumed, self.zones = ledger, claims, assumed, zones
        self.latest: tuple[Sequence[ContainerDemand], list[int] | None] = (), None

    def is_current(self, node_info: NodeInfo, assumed: int) -> bool:
        return (
            self.ledger is node_info.ledger
            and self.claims is node_info.claims
            and self.assumed == assumed
        )


def lowest_zones(node_info: NodeInfo, plan: Plan) -> tuple[int, ...] | None:
    """Return the zone of each container of the plan's demand; None if hints and merge decide."""
    if not amounts_are_all() or plan.has_init_demand or plan.full_pcpus_only:
        return None
    rule = node_info.rule
    if (plan.rule.policy, plan.rule.scope) != (rule.policy, rule.scope):
        return None
    if node_info.grouped_zones or rule.policy == NONE:
        return None
    if any(part.zeros for part in plan.demand):
        return None
    expected = _expected(node_info)
    zones = expected.zones
    if zones is None:
        return None
    places = lowest_places(zones, plan.demand, plan.rule.scope)
    expected.latest = plan.demand, places
    return tuple([zones[place][0] for place in places]) if places is not None else None


def note_assumed_in_expected_zones(node_info: NodeInfo, charge: Charge) -> None:
    """Let an assumed pod take its expected zones."""
    expected: ExpectedZones | None = node_info.expected_zones
    if expected is None:
        return
    if not expected.is_current(node_info, len(node_info.assumed) - 1):
        node_info.expected_zones = None
        return
    if expected.zones is not None:
        demand, places = expected.latest
        if demand is not charge.demand:
            places = lowest_places(expected.zones, charge.demand, node_info.rule.scope)
        if not _take(expected.zones, charge.demand, places):
            expected.zones = None
    expected.assumed, expected.latest = len(node_info.assumed), ((), None)


def _expected(node_info: NodeInfo) -> ExpectedZones:
    expected: ExpectedZones | None = node_info.expected_zones
    assumed = len(node_info.assumed)
    if expected is None or not expected.is_current(node_info, assumed):
        expected = ExpectedZones(node_info.ledger, node_info.claims, assumed, _zones(node_info))
        node_info.expected_zones = expected
    return expected


def _zones(node_info: NodeInfo) -> Zones | None:
    node, report = node_info.ledger, node_info.report
    if report is None or not node_info.is_plain() or node.freed:
        return None
    if node.listed is None and node_info.rule.policy != SINGLE_NUMA_NODE:
        return None
    free = node_info.free_max
    if node_info.claims:
        free = {zone: dict(amounts) for zone, amounts in free.items()}
        for claim in node_info.claims.values():
            subtract(free, claim)
    pending = [
        charge
        for charge in node_info.charges()
        if charge.demand and not charge.confirmed and not charge.confirmed_zones
    ]
    if pending and order_of_ends_unknown(node):
        return None
    zones, scope = sorted(free.items()), node_info.rule.scope
    for charge in pending:
        places = lowest_places(zones, charge.demand, scope)
        if not _is_plain_pod(node, charge) or not _take(zones, charge.demand, places):
            return None
    return zones


def _is_plain_pod(node: LedgerNode, charge: Charge) -> bool:
    """False for a pod that is partially listed, or that names devices in an amount of 0."""
    if any(part.zeros for part in charge.demand):
        return False
    listed = (node.listed or {}).get(charge.key)
    return not listed or charge.alias is not None or not any(placement.held for placement in listed)


def _take(zones: Zones, demand: Sequence[ContainerDemand], places: Sequence[int] | None) -> bool:
    """Subtract the pod's request from these zones, as new values; False if it is not plain."""
    if places is None or any(part.kind == "init" for part in demand):
        return False
    for place, part in zip(places, demand, strict=True):
        zone, free = zones[place]
        rest = dict(free)
        for name, amount in part.amounts.items():
            rest[name] -= amount
        zones[place] = zone, rest
    return True


def lowest_places(zones: Zones, demand: Sequence[ContainerDemand], scope: str) -> list[int] | None:
    """Positions in `zones`, container by container; None if one has no zone, or containers before
    it may change that.
    """
    if scope == "pod" and len(demand) > 1:
        if any(part.kind != "app" for part in demand):
            return None
        place = _lowest(zones, peak(demand), {})
        return [place] * len(demand) if place >= 0 else None
    places: list[int] = []
    taken: dict[int, Amounts] = {}
    last = len(demand) - 1
    for index, part in enumerate(demand):
        place = _lowest(zones, part.amounts, taken)
        if place < 0:
            return None
        places.append(place)
        if index < last:
            earlier = taken.setdefault(place, {})
            for name, amount in part.amounts.items():
                earlier[name] = earlier.get(name, 0) + amount
    return places


def _lowest(zones: Zones, request: Amounts, taken: dict[int, Amounts]) -> int:
    """-1 if no zone holds the request alone. Runs for every reservation: plain loops."""
    amounts = request.items()
    for place, (_, free) in enumerate(zones):
        earlier = taken.get(place)
        for name, amount in amounts:
            if free.get(name, 0) - (earlier.get(name, 0) if earlier else 0) < amount:
                break
        else:
            return place
    return -1


# -- certainty


def predict_if_on(node_info: NodeInfo, plan: Plan, config: CycleConfig) -> tuple[Predicted, bool]:
    """Return the prediction and whether it is certain; nothing if predictions are off."""
    if config.prediction == "off" or plan.mode not in BY_KUBELET or plan.rule.policy == NONE:
        return {}, False
    lowest = lowest_zones(node_info, plan)
    if lowest is None:
        return by_hints(node_info, plan), False
    predicted: Predicted = {name: (zone,) for name, zone in zip(plan.names, lowest, strict=True)}
    return predicted, is_certain(node_info, plan, lowest)


def is_certain(node_info: NodeInfo, plan: Plan, lowest: tuple[int, ...]) -> bool:
    """Return whether every possible kubelet state puts the containers into these zones, which are
    the lowest ones of the expected state.
    """
    ledger = node_info.ledger
    if ledger.listed is None or not lowest:
        return False
    if plan.rule.policy != SINGLE_NUMA_NODE and not _is_known(node_info, plan):
        return False
    free_min, free_max = node_info.free_min, node_info.free_max
    if len(lowest) == 1:
        is_sure = _is_surely_lowest(lowest[0], plan.demand[0].amounts, free_min, free_max)
    else:
        is_sure = _zones_by(free_min, plan) == [*lowest] == _zones_by(free_max, plan)
    return is_sure and not is_other_version(ledger)


def _is_surely_lowest(
    zone: int, request: Amounts, free_min: ZoneAmounts, free_max: ZoneAmounts
) -> bool:
    """Return what a comparison of `_zones_by` for both amounts says of one container, but faster,
    because this runs for every reservation.
    """
    for number, free in free_max.items():
        if number < zone and _holds(free, request):
            return False
    return _holds(free_max[zone], request) and _holds(free_min[zone], request)


def _holds(free: Amounts, request: Amounts) -> bool:
    return all(free.get(name, 0) >= amount for name, amount in request.items())


def _is_known(node_info: NodeInfo, plan: Plan) -> bool:
    doubtful = in_doubt(node_info.ledger, plan.rule.policy)
    if any(name in doubtful for part in plan.demand for name in part.amounts):
        return False
    return node_info.free_min == node_info.free_max and not node_info.ledger.ended


def _zones_by(free: ZoneAmounts, plan: Plan) -> list[int] | None:
    zones = sorted(free.items())
    places = lowest_places(zones, plan.demand, plan.rule.scope)
    return None if places is None else [zones[place][0] for place in places]
