"""Placing a pod the plain way: every node, every predicate, every zone, every branch and every outcome, without shortcuts.

What the columnar cycle must equal. Works on ledger nodes and on own reservations that no fold has brought yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from fractions import Fraction
from itertools import product
from math import ceil

import msgspec
import xxhash

from services.scheduler.deciding.config import CycleConfig
from services.scheduler.deciding.constraints.predicates import constraint_refusal
from services.scheduler.deciding.feasibility.alignment import YES, aligned
from services.scheduler.deciding.feasibility.branches import _kept, _reused, fits, minus
from services.scheduler.deciding.feasibility.overtaking import harmless
from services.scheduler.deciding.node_facts import NodeFacts, report_state
from services.scheduler.deciding.policy import combined, node_rule, pinned, pod_policy
from services.scheduler.deciding.reservation import reserve
from services.scheduler.deciding.shape import Part, Shape, key_of
from shared.domain.demand import ContainerDemand, most, peak, zonal_demand
from shared.domain.effective import effective_request
from shared.domain.pod import Constraints, Container, Pod
from shared.domain.resources import Amounts, is_memory
from shared.events.cluster_facts import NodeObserved
from shared.ledger.charge import WHOLE_POD, apart, charge_zones, possible_zones
from shared.ledger.state import Charge, LedgerNode

Zones = dict[int, Amounts]
_EVERYTHING = ("cpu", "memory", "pods", "example.com/gpu")


class Reference:
    """Ledger nodes by name, and reservations ahead of the fold."""

    def __init__(self, config: CycleConfig) -> None:
        self.config = config
        self.nodes: dict[str, LedgerNode] = {}
        self.ahead: dict[str, list[Pod]] = {}

    def put_node(self, node: LedgerNode) -> None:
        """The ledger's word replaces everything."""
        self.nodes[node.name] = node
        self.ahead[node.name] = []

    def drop_node(self, name: str) -> None:
        """Forget it."""
        self.nodes.pop(name, None)
        self.ahead.pop(name, None)

    def charge(self, name: str, pod: Pod) -> None:
        """Reserve ahead of the fold."""
        self.ahead[name].append(pod)

    def scores(self, pod: Pod) -> dict[str, int]:
        """Node -> score for every node that takes the pod."""
        found = {name: self.score(pod, name) for name in self.nodes}
        return {name: score for name, score in found.items() if score is not None}

    def place(self, pod: Pod) -> tuple[str, int] | None:
        """The best node and its score; ties go to the least distance between the hashes of node and pod."""
        scores = self.scores(pod)
        salt = xxhash.xxh3_64_intdigest(pod.uid.encode())
        ranked = [(-score, xxhash.xxh3_64_intdigest(name.encode()) ^ salt, name) for name, score in scores.items()]
        return (min(ranked)[2], -min(ranked)[0]) if ranked else None

    def score(self, pod: Pod, name: str) -> int | None:
        """The node's score, None when it refuses or when the pod could overtake another and cost it its place."""
        score = self._alone(pod, name)
        return None if score is None or self._endangers(pod, name) else score

    def _endangers(self, pod: Pod, name: str) -> bool:
        """Is there a pod on its way to the node that passes there, but not once this one is charged in its stead?"""
        node = self.nodes[name]
        if node.basis is None or not zonal_demand(pod, node.basis.tracked) or report_state(node):
            return False
        nobody = Pod("", "ns", "")
        return any(
            not self._passes_after(each, pod, node) and self._passes_after(each, nobody, node) for each in self._arriving(node)
        )

    def _arriving(self, node: LedgerNode) -> list[Pod]:
        """Charged pods that are not known to be admitted; those of the ledger made again from their demand."""
        charged = [c for c in node.charges.values() if c.zones and not c.proven and not c.admitted]
        parts = {c.uid: tuple(Container(d.name, d.kind, d.amounts, d.amounts) for d in c.demand) for c in charged}
        known = [Pod(c.uid, "ns", c.uid, "Guaranteed", parts[c.uid]) for c in charged]
        assert node.basis is not None
        return known + [pod for pod in self.ahead[node.name] if zonal_demand(pod, node.basis.tracked)]

    def _passes_after(self, earlier: Pod, newcomer: Pod, node: LedgerNode) -> bool:
        other, changed = Reference(self.config), deepcopy(node)
        charge = changed.charges.pop(earlier.uid, None)
        for zone, held in charge.zones.items() if charge is not None else ():
            changed.lower[zone] = _plus(changed.lower[zone], held)
        changed.requested = {}
        assert changed.observed is not None
        changed.observed = NodeObserved(
            node.name, "", allocatable=dict.fromkeys(_EVERYTHING, 1 << 50), labels=changed.observed.labels
        )
        other.put_node(changed)
        ahead = [pod for pod in self.ahead[node.name] if pod.uid != earlier.uid]
        other.ahead[node.name] = [*ahead, msgspec.structs.replace(newcomer, uid="newcomer", constraints=Constraints())]
        return other._alone(msgspec.structs.replace(earlier, constraints=Constraints(), annotations={}), node.name) is not None

    def _alone(self, pod: Pod, name: str) -> int | None:
        """The node's score without regard to pods on their way."""
        node, config = self.nodes[name], self.config
        if pod.constraints.unsupported or constraint_refusal(pod.constraints, node.observed, name) is not None:
            return None
        assert node.observed is not None
        request = {each: held for each, held in effective_request(pod).items() if held > 0}
        free = self._free(node)
        if free.get("pods", 1) < 1 or any(free.get(each, 0) < held for each, held in request.items()):
            return None
        whole = self._on_the_node(request, free, node.observed.allocatable)
        state = report_state(node)
        every = {each for c in pod.containers for each in (*c.requests, *c.limits)}
        if state:
            return None if zonal_demand(pod, every) and config.on_missing_report == "refuse" else whole
        assert node.basis is not None
        labels = node.observed.labels
        own = pod_policy(pod)
        rule = combined(node_rule(node.basis, labels, config.policy_precedence), own.policy)
        demand = zonal_demand(pod, pinned(node.basis, labels, config.policy_precedence))
        if rule.problem and (own.policy or demand):
            return None
        if not demand:
            return whole
        if not node.lower:
            return None
        lower, upper, charges = self._bounds(node)
        if rule.policy in ("none", "best-effort"):
            if not _enough_in_all(demand, _totals(node, upper, charges)):
                return None
            return whole if self._over_several_zones(pod, node) else None
        sizes = _sizes(node)
        tied = _tied(node, charges, sizes)
        lower = {z: {n: min(a, 0) if z in tied and is_memory(n) else a for n, a in h.items()} for z, h in lower.items()}
        parts = [Part(d.name, d.kind, d.amounts) for d in demand]
        if rule.scope == "pod":
            parts = [Part("", "app", peak(demand))]
        if rule.policy == "restricted" and any(a > sizes.get(n, 0) for part in parts for n, a in part.amounts.items()):
            return 0 if self._over_several_zones(pod, node) else None
        if not _every_outcome(parts, lower, upper, charges, node):
            return None
        if not harmless(self._facts(node), Shape(key_of(pod), pod, 0), self.config):
            return None
        return sum(_zone_score(self.config.strategy, part, lower, node) for part in parts) // len(parts)

    def _on_the_node(self, request: Amounts, free: Amounts, whole: Amounts) -> int:
        if not request:
            return 0
        if self.config.strategy == "LeastAllocated":
            return _least_allocated(request, free, whole)
        return _best_fit(request, {name: free[name] for name in request}, {name: whole[name] for name in request})

    def _over_several_zones(self, pod: Pod, node: LedgerNode) -> bool:
        """The search itself, on facts made anew: that it is right is held against the exact kubelet elsewhere."""
        facts = self._facts(node)
        plan = Shape(key_of(pod), pod, 0).plan(facts.profile)
        return aligned(facts, plan, self.config) == YES and harmless(facts, Shape(key_of(pod), pod, 0), self.config)

    def _facts(self, node: LedgerNode) -> NodeFacts:
        facts = NodeFacts(node.name, 0)
        facts.take_in(node, self.config)
        for each in self.ahead[node.name]:
            reserve(facts, each, Shape(key_of(each), each, 0))
        return facts

    def _free(self, node: LedgerNode) -> Amounts:
        assert node.observed is not None
        free = {name: held - node.requested.get(name, 0) for name, held in node.observed.allocatable.items()}
        for pod in self.ahead[node.name]:
            for name, held in {**effective_request(pod), "pods": 1}.items():
                if name in free:
                    free[name] -= held
        return free

    def _bounds(self, node: LedgerNode) -> tuple[Zones, Zones, list[Charge]]:
        assert node.basis is not None
        lower = {zone: dict(held) for zone, held in node.lower.items()}
        charges = list(node.charges.values())
        for pod in self.ahead[node.name]:
            demand = zonal_demand(pod, node.basis.tracked)
            charge = Charge(pod.uid, pod.key, 0, demand, possible_zones(demand, node.basis, node.upper))
            charge.zones = charge_zones(demand, charge.possible, [zone.id for zone in node.basis.zones])
            for zone, held in charge.zones.items():
                lower[zone] = minus(lower[zone], {n: a for n, a in held.items() if n in lower[zone]})
            charges.append(charge)
        return lower, {zone: dict(held) for zone, held in node.upper.items()}, charges


def _least_allocated(asked: Amounts, free: Amounts, whole: Amounts) -> int:
    return sum((free[name] - held) * 100 // whole[name] for name, held in asked.items()) // len(asked)


def _best_fit(asked: Amounts, free: Amounts, whole: Amounts) -> int:
    """Five for each device left, up to nine of them, and up to 55 by the mean share left of what is asked for."""
    left = {name: max(0, free.get(name, 0)) - asked.get(name, 0) for name, size in whole.items() if size > 0}
    devices = sum(ceil(Fraction(left[name] * 9, max(9, whole[name]))) for name in left if name not in ("cpu", "memory"))
    shares = sum(left[name] * 100 // whole[name] for name in asked)
    return 100 - 5 * min(9, devices) - shares * 55 // (100 * len(asked))


def _zone_score(strategy: str, part: Part, lower: Zones, node: LedgerNode) -> int:
    assert node.basis is not None
    whole = {zone.id: {name: held.allocatable for name, held in zone.resources.items()} for zone in node.basis.zones}
    fitting = [(held, whole[zone]) for zone, held in sorted(lower.items()) if fits(part.amounts, held)]
    if strategy == "LeastAllocated":
        return max((_least_allocated(part.amounts, held, size) for held, size in fitting), default=0)
    return _best_fit(part.amounts, *fitting[0]) if fitting else 0


def _totals(node: LedgerNode, upper: Zones, charges: list[Charge]) -> Amounts:
    """What is surely free on the whole node: each unproven pod holds its demand once."""
    totals: Amounts = {}
    for zone in upper.values():
        totals = {name: totals.get(name, 0) + zone.get(name, 0) for name in {*totals, *zone}}
    for charge in charges:
        if not charge.zones:
            continue
        known = list(charge.zones.values()) if charge.held else [most(charge.demand, apart(charge.possible))]
        if charge.proven:
            names = {name for held in charge.zones.values() for name in held}
            known = [{name: max(held.get(name, 0) for held in charge.zones.values()) for name in names}]
        for held in known:
            totals = {name: amount - held.get(name, 0) for name, amount in totals.items()}
    return totals


def _sizes(node: LedgerNode) -> Amounts:
    assert node.basis is not None
    zones = [zone.resources for zone in node.basis.zones]
    return {n: max(z[n].allocatable if n in z else 0 for z in zones) for z in zones for n in z}


def _tied(node: LedgerNode, charges: list[Charge], sizes: Amounts) -> set[int]:
    """Zones that may be part of a group of the Memory Manager."""
    assert node.basis is not None
    if node.basis.policy != "single-numa-node" and len(node.lower) > 1:
        for charge in charges:
            parts = [most(charge.demand)] if node.basis.scope == "pod" else [part.amounts for part in charge.demand]
            wide = any(is_memory(n) and a > sizes.get(n, 0) for part in parts for n, a in part.items())
            if wide and (node.listed is None or not charge.proven):
                return set(node.lower)
    listed = [item for placements in (node.listed or {}).values() for each in placements for item in each.held]
    return {zone for item in listed if len(item.zones) > 1 and is_memory(item.resource) for zone in item.zones}


def _enough_in_all(demand: Sequence[ContainerDemand], totals: Amounts) -> bool:
    """Necessary under none and best-effort: CPUs and devices on the node as a whole."""
    return all(is_memory(name) or totals.get(name, 0) >= held for name, held in peak(demand).items())


def _every_outcome(parts: list[Part], lower: Zones, upper: Zones, charges: list[Charge], node: LedgerNode) -> bool:
    """Every combination of what unsettled pods may hold, each pod's absence included."""
    open_charges = [charge for charge in charges if charge.zones and not charge.proven]
    choices = [list(_outcomes(charge, node)) for charge in open_charges]
    for chosen in product(*choices):
        low, high = lower, upper
        for charge, (at_most, at_least) in zip(open_charges, chosen, strict=True):
            low = {zone: _plus(held, charge.zones.get(zone, {})) for zone, held in low.items()}
            low = {zone: minus(held, at_most.get(zone, {})) for zone, held in low.items()}
            high = {zone: minus(held, at_least.get(zone, {})) for zone, held in high.items()}
        if all(held >= 0 for zone in high.values() for held in zone.values()) and not _walk(parts, low, high, {}):
            return False
    return True


def _outcomes(charge: Charge, node: LedgerNode) -> Iterator[tuple[Zones, Zones]]:
    """What the pod may hold at most and at least by zone: each container somewhere or nowhere, or nobody knows what."""
    assert node.basis is not None
    report, possible = node.basis, charge.possible
    whole = possible.get(WHOLE_POD)
    yield {}, {}
    single = report.policy == "single-numa-node" or (report.policy == "restricted" and narrow(charge, node))
    init = any(part.kind == "init" for part in charge.demand)
    if charge.held or not single or (whole and len(possible) > 1) or (init and report.scope != "pod"):
        yield charge.zones, {}
    elif report.scope == "pod":
        for zone in whole or ():
            if zone in charge.zones:
                yield {zone: most(charge.demand)}, {zone: most([p for p in charge.demand if p.kind != "init"])}
    else:
        places = [[None, *(z for z in whole or possible[p.name] if z in charge.zones)] for p in charge.demand]
        for zones in product(*places):
            there = {z: [p for p, at in zip(charge.demand, zones, strict=True) if at == z] for z in zones if z is not None}
            held = {z: most(parts) for z, parts in there.items()}
            yield held, held


def narrow(charge: Charge, node: LedgerNode) -> bool:
    """Every amount fits some zone when it is empty."""
    assert node.basis is not None
    sizes = [{name: held.allocatable for name, held in zone.resources.items()} for zone in node.basis.zones]
    parts = [peak(charge.demand)] if node.basis.scope == "pod" else [part.amounts for part in charge.demand]
    return all(any(s.get(n, 0) >= a for s in sizes) for amounts in parts for n, a in amounts.items())


def _plus(held: Amounts, given: Amounts) -> Amounts:
    return {name: amount + given.get(name, 0) for name, amount in held.items()}


def _walk(parts: list[Part], lower: Zones, upper: Zones, reuse: dict[tuple[str, int], tuple[int, int, bool]]) -> bool:
    if not parts:
        return True
    part, rest = parts[0], parts[1:]
    pulls = [(zone, held) for (name, zone), held in reuse.items() if name in part.amounts]
    if not any(fits(part.amounts, lower[z]) and all(zone == z for zone, held in pulls if held[1]) for z in lower):
        return False
    for z in upper:
        if not fits(part.amounts, upper[z]) or any(zone != z for zone, held in pulls if held[0]):
            continue
        preferred = [y for y in lower if y < z and fits(part.amounts, lower[y]) and all(zone == y for zone, h in pulls if h[0])]
        if preferred and not any(zone == z for zone, held in pulls if held[1]):
            continue  # a lower zone surely fits, and nothing draws the part to this one
        if part.kind == "init":
            later = (lower, upper, _kept(part, z, reuse))
        else:
            low, high = {**lower, z: minus(lower[z], part.amounts)}, {**upper, z: minus(upper[z], part.amounts)}
            later = (low, high, _reused(part, z, reuse))
        if not _walk(rest, *later):
            return False
    return True
