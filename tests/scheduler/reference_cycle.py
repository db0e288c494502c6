"""Placing a pod the plain way: every node, every predicate, hints and merge over every state,
without bounds or columns.

What the columnar cycle must equal. Works on ledger nodes and on own reservations that no fold has
brought yet.
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil

import xxhash

from services.scheduler.filter.constraints.predicates import constraint_refusal
from services.scheduler.filter.topology.bounds import fits
from services.scheduler.filter.topology.fit import ADMITTED, plan_for, search_result
from services.scheduler.score.predicted_zones import predicted_spread
from services.scheduler.score.ranks import rank_of, score_of
from services.scheduler.snapshot.assume import assume
from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.node_info import NodeInfo, report_state
from services.scheduler.snapshot.pod_class import AlignedPart, PodClass, key_of
from services.scheduler.snapshot.topology_policy import combined, node_rule, pinned, pod_policy
from shared.domain.demand import most, peak, zonal_demand
from shared.domain.effective import effective_request
from shared.domain.pod import Pod
from shared.domain.resources import Amounts, is_memory
from shared.hints.admission_orders import UNKNOWN
from shared.ledger.charge import charge_zones, possible_zones
from shared.ledger.state import Charge, LedgerNode

Zones = dict[int, Amounts]
_EVERYTHING = ("cpu", "memory", "pods", "example.com/gpu")


class Reference:
    """Ledger nodes by name, and reservations ahead of the fold."""

    def __init__(self, config: CycleConfig) -> None:
        self.config = config
        self.nodes: dict[str, LedgerNode] = {}
        self.ahead: dict[str, list[Pod]] = {}
        self.over_budget = False

    def put_node(self, node: LedgerNode) -> None:
        """Replace the node by the ledger's node, without its own reservations."""
        self.nodes[node.name] = node
        self.ahead[node.name] = []

    def drop_node(self, name: str) -> None:
        """Forget the node."""
        self.nodes.pop(name, None)
        self.ahead.pop(name, None)

    def charge(self, name: str, pod: Pod) -> None:
        """Charge an own reservation that the fold has not reached."""
        self.ahead[name].append(pod)

    def scores(self, pod: Pod) -> dict[str, int]:
        """Return the rank of every node that takes the pod. Every node is predicted, without
        bounds. `over_budget` says that one node was not decided.
        """
        self.over_budget = False
        by_node = {name: self.score(pod, name) for name in self.nodes}
        return {
            name: rank_of(score, self._spread(pod, name))
            for name, score in by_node.items()
            if score is not None
        }

    def _spread(self, pod: Pod, name: str) -> int:
        node_info = self._node_infos(self.nodes[name])
        plan = plan_for(PodClass(key_of(pod), pod, 0), node_info.profile, self.config)
        return predicted_spread(node_info, plan)

    def place(self, pod: Pod) -> tuple[str, int] | None:
        """Return the best node and its score. Of equal nodes, the one whose hash is nearest to the
        pod's wins.
        """
        scores = self.scores(pod)
        salt = xxhash.xxh3_64_intdigest(pod.uid.encode())
        ranked = [
            (-rank, xxhash.xxh3_64_intdigest(name.encode()) ^ salt, name)
            for name, rank in scores.items()
        ]
        return (min(ranked)[2], score_of(-min(ranked)[0])) if ranked else None

    def score(self, pod: Pod, name: str) -> int | None:
        """Return the node's score, None if it refuses the pod."""
        node, config = self.nodes[name], self.config
        if (
            pod.constraints.unsupported
            or constraint_refusal(pod.constraints, node.observed, name) is not None
        ):
            return None
        assert node.observed is not None
        request = {each: held for each, held in effective_request(pod).items() if held > 0}
        free = self._free(node)
        if free.get("pods", 1) < 1 or any(
            free.get(each, 0) < held for each, held in request.items()
        ):
            return None
        whole = self._on_the_node(request, free, node.observed.allocatable)
        state = report_state(node)
        every = {each for c in pod.containers for each in (*c.requests, *c.limits)}
        if state:
            return (
                None if zonal_demand(pod, every) and config.on_missing_report == "refuse" else whole
            )
        assert node.basis is not None
        labels = node.observed.labels
        policy = pod_policy(pod)
        rule = combined(node_rule(node.basis, labels, config.policy_precedence), policy)
        demand = zonal_demand(pod, pinned(node.basis, labels, config.policy_precedence))
        if rule.problem and (policy.policy or demand):
            return None
        if not demand:
            return whole
        if not node.free_min:
            return None
        if not self._admits(pod, node):
            return None
        sizes = _sizes(node)
        free_min = _without_groups(self._lower(node), _tied(node, self._charges(node), sizes))
        if rule.policy in ("none", "best-effort"):
            return whole
        parts = [AlignedPart(d.name, d.kind, d.amounts) for d in demand]
        if rule.scope == "pod":
            parts = [AlignedPart("", "app", peak(demand))]
        if rule.policy == "restricted" and any(
            a > sizes.get(n, 0) for part in parts for n, a in part.amounts.items()
        ):
            return whole
        return sum(
            _zone_score(self.config.strategy, part, free_min, node) for part in parts
        ) // len(parts)

    def _on_the_node(self, request: Amounts, free: Amounts, whole: Amounts) -> int:
        if not request:
            return 0
        if self.config.strategy == "LeastAllocated":
            return _least_allocated(request, free, whole)
        return _best_fit(
            request, {name: free[name] for name in request}, {name: whole[name] for name in request}
        )

    def _admits(self, pod: Pod, node: LedgerNode) -> bool:
        """Search every state without bounds. Other tests compare this search with the exact
        kubelet.
        """
        node_info = self._node_infos(node)
        result = search_result(
            node_info,
            PodClass(key_of(pod), pod, 0).plan(node_info.profile),
            self.config.steps_last_resort,
        )
        self.over_budget = self.over_budget or result == UNKNOWN
        return result == ADMITTED

    def _node_infos(self, node: LedgerNode) -> NodeInfo:
        node_info = NodeInfo(node.name, 0)
        node_info.update_from(node, self.config)
        for pending in self.ahead[node.name]:
            assume(node_info, pending, PodClass(key_of(pending), pending, 0))
        return node_info

    def _free(self, node: LedgerNode) -> Amounts:
        assert node.observed is not None
        free = {
            name: held - node.requested.get(name, 0)
            for name, held in node.observed.allocatable.items()
        }
        for pod in self.ahead[node.name]:
            for name, amount in {**effective_request(pod), "pods": 1}.items():
                if name in free:
                    free[name] -= amount
        return free

    def _charges(self, node: LedgerNode) -> list[Charge]:
        assert node.basis is not None
        charges = list(node.charges.values())
        for pod in self.ahead[node.name]:
            demand = zonal_demand(pod, node.basis.tracked)
            charge = Charge(
                pod.uid, pod.key, 0, demand, possible_zones(demand, node.basis, node.free_max)
            )
            charge.zones = charge_zones(
                demand, charge.possible, [zone.id for zone in node.basis.zones], node.basis
            )
            charges.append(charge)
        return charges

    def _lower(self, node: LedgerNode) -> Zones:
        free_min = {zone: dict(held) for zone, held in node.free_min.items()}
        for charge in self._charges(node)[len(node.charges) :]:
            for zone, needed in charge.zones.items():
                free_min[zone] = {
                    name: amount - needed.get(name, 0) for name, amount in free_min[zone].items()
                }
        return free_min


def _without_groups(free_min: Zones, tied: set[int]) -> Zones:
    return {
        z: {n: min(a, 0) if z in tied and is_memory(n) else a for n, a in held.items()}
        for z, held in free_min.items()
    }


def _least_allocated(asked: Amounts, free: Amounts, whole: Amounts) -> int:
    return sum((free[name] - held) * 100 // whole[name] for name, held in asked.items()) // len(
        asked
    )


def _best_fit(asked: Amounts, free: Amounts, whole: Amounts) -> int:
    """Return the score: 5 for each remaining device, up to nine of them, and up to 55 by the mean
    remaining share of the requested resources.
    """
    remaining = {
        name: max(0, free.get(name, 0)) - asked.get(name, 0)
        for name, size in whole.items()
        if size > 0
    }
    devices = sum(
        ceil(Fraction(remaining[name] * 9, max(9, whole[name])))
        for name in remaining
        if name not in ("cpu", "memory")
    )
    shares = sum(remaining[name] * 100 // whole[name] for name in asked)
    return 100 - 5 * min(9, devices) - shares * 55 // (100 * len(asked))


def _zone_score(strategy: str, part: AlignedPart, free_min: Zones, node: LedgerNode) -> int:
    assert node.basis is not None
    whole = {
        zone.id: {name: held.allocatable for name, held in zone.resources.items()}
        for zone in node.basis.zones
    }
    fitting = [
        (held, whole[zone]) for zone, held in sorted(free_min.items()) if fits(part.amounts, held)
    ]
    if strategy == "LeastAllocated":
        return max(
            (_least_allocated(part.amounts, held, size) for held, size in fitting), default=0
        )
    return _best_fit(part.amounts, *fitting[0]) if fitting else 0


def _sizes(node: LedgerNode) -> Amounts:
    assert node.basis is not None
    zones = [zone.resources for zone in node.basis.zones]
    return {n: max(z[n].allocatable if n in z else 0 for z in zones) for z in zones for n in z}


def _tied(node: LedgerNode, charges: list[Charge], sizes: Amounts) -> set[int]:
    """Zones that may be part of a group of the Memory Manager."""
    assert node.basis is not None
    if node.basis.policy != "single-numa-node" and len(node.free_min) > 1:
        for charge in charges:
            parts = (
                [most(charge.demand)]
                if node.basis.scope == "pod"
                else [part.amounts for part in charge.demand]
            )
            wide = any(
                is_memory(n) and a > sizes.get(n, 0) for part in parts for n, a in part.items()
            )
            if wide and (node.listed is None or not charge.confirmed):
                return set(node.free_min)
    listed = [
        item
        for placements in (node.listed or {}).values()
        for each in placements
        for item in each.held
    ]
    return {
        zone
        for item in listed
        if len(item.zones) > 1 and is_memory(item.resource)
        for zone in item.zones
    }
