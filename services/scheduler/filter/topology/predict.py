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
    if not _is_plain(node_info, plan):
        return None
    expected = _expected(node_info)
    zones = expected.zones
    if zones is None:
        return None
    places = lowest_places(zones, plan.demand, plan.rule.scope)
    expected.latest = plan.demand, places
    return tuple([zones[place][0] for place in places]) if places is not None else None


def _is_plain(node_info: NodeInfo, plan: Plan) -> bool:
    """Return whether each container of the plan takes the lowest zone that holds it."""
    rule = node_info.rule
    if not plan.is_plain or rule.policy == NONE or not amounts_are_all():
        return False
    if (plan.rule.policy, plan.rule.scope) != (rule.policy, rule.scope):
        return False
    if node_info.plainness is None:
        node_info.plainness = _plainness(node_info)
    return node_info.plainness and not node_info.grouped_zones


def _plainness(node_info: NodeInfo) -> bool:
    node, report = node_info.ledger, node_info.report
    if report is None or not node_info.is_plain() or node.freed:
        return False
    if node.listed is None and node_info.rule.policy != SINGLE_NUMA_NODE:
        return False
    pending = _pending(node_info)
    return not pending or (
        not order_of_ends_unknown(node) and all(_is_plain_pod(node, charge) for charge in pending)
    )


def _pending(node_info: NodeInfo) -> list[Charge]:
    return [
        charge
        for charge in node_info.charges()
        if charge.demand and not charge.confirmed and not charge.confirmed_zones
    ]


def note_assumed_in_expected_zones(node_info: NodeInfo, charge: Charge) -> None:
    """Let an assumed pod take its expected zones."""
    node = node_info.ledger
    if node_info.plainness and charge.demand:
        node_info.plainness = not order_of_ends_unknown(node) and _is_plain_pod(node, charge)
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
    free = node_info.free_max
    if node_info.claims:
        free = {zone: dict(amounts) for zone, amounts in free.items()}
        for claim in node_info.claims.values():
            subtract(free, claim)
    zones, scope = sorted(free.items()), node_info.rule.scope
    for charge in _pending(node_info):
        if not _take(zones, charge.demand, lowest_places(zones, charge.demand, scope)):
            return None
    return zones


def _is_plain_pod(node: LedgerNode, charge: Charge) -> bool:
    """False for a pod that is partially listed, has init containers, or names devices in an amount
    of 0.
    """
    if any(part.zeros or part.kind == "init" for part in charge.demand):
        return False
    listed = (node.listed or {}).get(charge.key)
    return not listed or charge.alias is not None or not any(placement.held for placement in listed)


def _take(zones: Zones, demand: Sequence[ContainerDemand], places: Sequence[int] | None) -> bool:
    """Subtract the pod's request from these zones, as new values; False if it finds no place."""
    if places is None:
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


def sure_places(node_info: NodeInfo, plan: Plan) -> Sequence[int] | None:
    """Return the place of each container's zone if guaranteed free and free at most amounts lead to
    the same: then no state leads elsewhere on a plain node.
    """
    scope = plan.rule.scope
    by_min = lowest_places(sorted(node_info.free_min.items()), plan.demand, scope)
    by_max = lowest_places(sorted(node_info.free_max.items()), plan.demand, scope)
    return by_min if by_min == by_max else None


def predict_if_on(
    node_info: NodeInfo, plan: Plan, config: CycleConfig, sure: Sequence[int] | None
) -> tuple[Predicted, bool]:
    """Return the prediction and whether it is certain; nothing if predictions are off. `sure` has
    the `sure_places`.
    """
    if config.prediction == "off" or plan.mode not in BY_KUBELET or plan.rule.policy == NONE:
        return {}, False
    by_bounds = None if sure is None else tuple([node_info.zone_ids[place] for place in sure])
    if by_bounds is not None and plan.rule.policy == SINGLE_NUMA_NODE:
        lowest = by_bounds if _is_plain(node_info, plan) else None
    else:
        lowest = lowest_zones(node_info, plan)
    if lowest is None:
        return by_hints(node_info, plan), False
    predicted: Predicted = {name: (zone,) for name, zone in zip(plan.names, lowest, strict=True)}
    return predicted, lowest == by_bounds and _is_certain(node_info, plan)


def _is_certain(node_info: NodeInfo, plan: Plan) -> bool:
    """Return whether zones are certain that both bounds and the expected state lead to."""
    ledger = node_info.ledger
    if ledger.listed is None or not plan.demand:
        return False
    if plan.rule.policy != SINGLE_NUMA_NODE and not _is_known(node_info, plan):
        return False
    return not is_other_version(ledger)


def _is_known(node_info: NodeInfo, plan: Plan) -> bool:
    doubtful = in_doubt(node_info.ledger, plan.rule.policy)
    if any(name in doubtful for part in plan.demand for name in part.amounts):
        return False
    return node_info.free_min == node_info.free_max and not node_info.ledger.ended
