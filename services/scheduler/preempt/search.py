"""Preemption: on which node do which few pods of lower priority stand in the way?

Nobody goes for a pod that may have room already (`patience`). A set of victims counts only if the
pod would then be admitted in every state that is consistent with what is known: what the ledger
would hold without them (`what_if`) is judged like any node. Where a pod needs zones, nodes whose
reports carry no placements are left alone: what an eviction frees there is not known; nodes with a
pod of unknown zone wait for its proof, since until then more would have to go than is in the way.
More room can be worse for a pod of several containers: for those small sets are tried as well, so
that nobody goes whose stay would not have hindered. Must not know budgets, the log or a clock.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from itertools import combinations, islice

from services.scheduler.filter.blocking import blocked, plan_for
from services.scheduler.filter.constraints.predicates import constraint_refusal, fits_node
from services.scheduler.filter.topology.bounds import fits, one_zone_each
from services.scheduler.filter.topology.fit import ADMITTED, verdict
from services.scheduler.filter.topology.patience import (
    is_known,
    leaves_open,
    may_fit,
    obstacle,
)
from services.scheduler.filter.topology.predict import predict
from services.scheduler.preempt.known_state import admits, known_state, kubelet_decides
from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.node_info import NodeFacts
from services.scheduler.snapshot.pod_class import Plan, Shape
from services.scheduler.snapshot.result import Nomination
from shared.domain.pod import Pod
from shared.domain.resources import CPU
from shared.kubelet.machine import KubeletState
from shared.ledger.state import LedgerPod, ZoneAmounts
from shared.ledger.what_if import expected, holdings, most_without

MOST_CHECKS = 300
"""Sets of victims judged for one pod."""
MOST_NODES = 2_000
"""Nodes looked at for one pod; the search for the next pod begins elsewhere."""
MOST_STATES = 32
"""Nodes whose kubelet's state is made again for one pod (a millisecond each): as many when it is asked whether the pod may fit
already, and when victims are sought; beyond them bounds decide."""
MOST_FOUND = 16
"""Nodes with a way out that are compared; the first ones in the caller's order."""
MOST_SETS = 128
"""Sets of few victims tried on one node for a pod of several containers."""

Pods = Mapping[str, LedgerPod]
Victims = frozenset[str]
Found = tuple[tuple[int, int, int, str], NodeFacts, Victims]
"""(cost, node, victims)."""


def find(
    pod: Pod,
    shape: Shape,
    nodes: Iterable[NodeFacts],
    pods: Pods,
    config: CycleConfig,
    spared: Container[str] = (),
) -> Nomination | None:
    """The least costly victims: the lowest highest priority, then the fewest, then the lowest sum,
    then the node's name.

    `spared` are uids that may not be evicted. None when no eviction helps, or when room is on its
    way already."""
    search = _Search(pod, shape, pods, config, spared)
    looked = list(islice(nodes, MOST_NODES))
    if any(map(search.may_fit_already, looked)):
        return None
    search.states = MOST_STATES
    found = search.over(looked, search.on_node)
    if found == []:
        found = search.over(looked, search.on_node_by_few)
    if not found:
        return None
    _, facts, victims = min(found, key=lambda each: each[0])
    victims = search.fewer(facts, victims)
    return Nomination(facts.name, tuple(sorted(victims)), search.claim(facts, victims))


def still_suffices(
    pod: Pod,
    shape: Shape,
    facts: NodeFacts,
    victims: Collection[str],
    pods: Pods,
    config: CycleConfig,
) -> bool:
    """Would the pod, its own claim given back, fit once the victims that are left, and whoever is
    going anyway, are gone?
    """
    search = _Search(pod, shape, pods, config, ())
    return search.fits(
        facts,
        frozenset(uid for uid in victims if uid in facts.ledger.charges) | search.going(facts),
    )


def widened(
    pod: Pod,
    shape: Shape,
    facts: NodeFacts,
    offered: Iterable[str],
    pods: Pods,
    config: CycleConfig,
) -> tuple[str, ...] | None:
    """Victims by which the pod surely fits this node: those that are offered, and the fewest beside
    them; None when none help.
    """
    search, given = _Search(pod, shape, pods, config, ()), tuple(offered)
    known = frozenset(uid for uid in given if uid in facts.ledger.charges) | search.going(facts)
    if search.fits(facts, known):
        return given
    more = [uid for uid in search.candidates(facts) if uid not in known]
    left = frozenset(more)
    if not more or not search.fits(facts, known | left):
        return None
    for uid in more:
        if search.fits(facts, known | (left - {uid})):
            left -= {uid}
    return (*given, *sorted(left))


class _Search:
    """One pod's search, bounded by `checks` and `states`."""

    def __init__(
        self, pod: Pod, shape: Shape, pods: Pods, config: CycleConfig, spared: Container[str]
    ) -> None:
        self._pod, self._shape, self._pods, self._config, self._spared = (
            pod,
            shape,
            pods,
            config,
            spared,
        )
        self.checks, self.states = MOST_CHECKS, MOST_STATES
        self._states: dict[str, KubeletState | None] = {}

    def may_fit_already(self, facts: NodeFacts) -> bool:
        """May the pod have room here as it stands, or once those have gone that are going? Then it
        waits for the next report.
        """
        going = self.going(facts)
        freed, plan = self._without(facts, going) if going else facts, self._plan(facts)
        if self._barred(facts) or not fits_node(self._shape.request, freed):
            return False
        if plan.mode == "free":
            return True
        state = self._state(facts)
        if state is not None:
            return admits(state, self._pod, going)
        if freed.tied and not plan.one_by_one:
            return leaves_open(freed, plan)
        return may_fit(freed, plan) and (leaves_open(freed, plan) or is_known(freed, plan))

    def _state(self, facts: NodeFacts) -> KubeletState | None:
        """What the node's kubelet holds, where that is known and it alone decides, for the first
        nodes that ask.
        """
        if facts.name not in self._states and self.states > 0:
            live = [self._pods[uid].pod for uid in facts.ledger.charges if uid in self._pods]
            complete = not facts.overlay and len(live) == len(facts.ledger.charges)
            known = complete and kubelet_decides(facts, self._plan(facts))
            self.states -= known
            self._states[facts.name] = known_state(facts.ledger, live) if known else None
        return self._states.get(facts.name)

    def over(
        self, nodes: Iterable[NodeFacts], on_node: Callable[[NodeFacts], Victims | None]
    ) -> list[Found] | None:
        """Nodes with a way out; None when the pod need only wait."""
        found: list[Found] = []
        for facts in nodes:
            victims = on_node(facts)
            if victims is not None and not victims:
                return None
            if victims:
                found.append((self.cost(facts, victims), facts, victims))
            if len(found) >= MOST_FOUND or self.checks <= 0:
                break
        return found

    def on_node(self, facts: NodeFacts) -> Victims | None:
        """The least costly victims here; empty when the pod need only wait, None when nothing
        helps.
        """
        candidates, going = self._open(facts)
        if not candidates or not self.fits(facts, frozenset(candidates) | going):
            return None
        if going and self.fits(facts, going):
            return frozenset()
        sets = [self._fewest(facts, group, going) for group in _groups(facts, candidates)]
        return min(
            (each for each in sets if each), key=lambda each: self.cost(facts, each), default=None
        )

    def on_node_by_few(self, facts: NodeFacts) -> Victims | None:
        """The same where the end of everybody does not help, but that of a few may: containers of
        one pod stand in each other's way, under scope pod too."""
        if len(self._plan(facts).demand) < 2:
            return None
        candidates, going = self._open(facts)
        if candidates and going and self.fits(facts, going):
            return frozenset()
        return next(
            (each for each in self._by_cost(candidates) if self.fits(facts, each | going)), None
        )

    def fewer(self, facts: NodeFacts, victims: Victims) -> Victims:
        """The cheapest set that helps, these victims when none cheaper is found."""
        if len(victims) == 1 and len(self._plan(facts).demand) < 2:
            return victims
        (candidates, going), limit = self._open(facts), self.cost(facts, victims)
        self.checks = max(self.checks, MOST_SETS)
        for each in self._by_cost(candidates):
            if self.cost(facts, each) < limit and self.fits(facts, each | going):
                return each
        return victims

    def _by_cost(self, candidates: list[str]) -> Iterator[Victims]:
        """Sets of victims: the lowest highest priority first, then the fewest."""
        return islice(self._sets(candidates), MOST_SETS)

    def _sets(self, candidates: list[str]) -> Iterator[Victims]:
        priorities = {uid: self._pods[uid].pod.priority for uid in reversed(candidates)}
        for top in sorted(set(priorities.values())):
            pool = [uid for uid, priority in priorities.items() if priority <= top]
            for size in range(1, len(pool) + 1):
                for chosen in combinations(pool, size):
                    if any(priorities[uid] == top for uid in chosen):
                        yield frozenset(chosen)

    def _open(self, facts: NodeFacts) -> tuple[list[str], Victims]:
        """(who may be evicted, who is going anyway); nobody where an eviction could not help, or
        nobody could tell.
        """
        going = self.going(facts)
        if (
            facts.overlay
            or self._barred(facts)
            or (self._plan(facts).mode != "free" and obstacle(facts))
        ):
            return [], going
        candidates = self.candidates(facts)
        return (
            candidates if candidates and self._could(facts, [*candidates, *going]) else []
        ), going

    def _barred(self, facts: NodeFacts) -> bool:
        plan = self._plan(facts)
        closed = constraint_refusal(self._shape.pod.constraints, facts.observed, facts.name)
        return (
            closed is not None
            or blocked(self._shape, facts.profile, plan, self._config) is not None
        )

    def _could(self, facts: NodeFacts, gone: list[str]) -> bool:
        """Cheap and necessary: with all they hold given back, some zone has as much as each part
        that needs one zone. What init containers keep no listing gives back: where the kubelet's
        state is known it answers instead. Amounts bound nothing where the plan says so."""
        plan = self._plan(facts)
        if plan.one_by_one or not one_zone_each(facts, plan) or self._state(facts) is not None:
            return True
        room = most_without(facts.ledger, gone)
        return all(any(fits(part.amounts, zone) for zone in room.values()) for part in plan.parts)

    def _plan(self, facts: NodeFacts) -> Plan:
        return plan_for(self._shape, facts.profile, self._config)

    def candidates(self, facts: NodeFacts) -> list[str]:
        """Who may be evicted, those to be spared first: high priorities, then small pods."""
        found = []
        for uid in facts.ledger.charges:
            entry = self._pods.get(uid)
            if entry is not None and self._evictable(uid, entry):
                size = sum(part.amounts.get(CPU, 0) for part in facts.ledger.charges[uid].demand)
                found.append((-entry.pod.priority, size, uid))
        return [uid for _, _, uid in sorted(found)]

    def _evictable(self, uid: str, entry: LedgerPod) -> bool:
        lower = entry.pod.priority < self._pod.priority
        return (
            lower
            and entry.stage in ("bound", "running")
            and not (entry.static or entry.terminating or uid in self._spared)
        )

    def going(self, facts: NodeFacts) -> Victims:
        """Pods that are being deleted already."""
        return frozenset(
            uid
            for uid in facts.ledger.charges
            if (entry := self._pods.get(uid)) is not None and entry.terminating
        )

    def _fewest(self, facts: NodeFacts, group: list[str], going: Victims) -> Victims | None:
        """The group less everybody who can be spared; None when even the whole group does not help."""
        left = frozenset(group)
        if not left or not self.fits(facts, left | going):
            return None
        for uid in group:
            fewer = left - {uid}
            if fewer and self.fits(facts, fewer | going):
                left = fewer
        return left

    def fits(self, facts: NodeFacts, gone: Victims) -> bool:
        """Would the node surely take the pod without these?"""
        self.checks -= 1
        if self.checks < 0:
            return False
        freed, plan = self._without(facts, gone), self._plan(facts)
        if not fits_node(self._shape.request, freed):
            return False
        if plan.mode == "free":
            return True
        state = self._state(facts)
        if state is not None:
            return admits(state, self._pod, gone)
        return (
            verdict(freed, self._shape, plan, self._config, self._config.steps_last_resort)
            == ADMITTED
        )

    def _without(self, facts: NodeFacts, gone: Victims) -> NodeFacts:
        return facts.imagined(gone, self._pods, self._pod.uid, self._config)

    def cost(self, facts: NodeFacts, victims: Victims) -> tuple[int, int, int, str]:
        priorities = [self._pods[uid].pod.priority for uid in victims]
        return max(priorities), len(priorities), sum(priorities), facts.name

    def claim(self, facts: NodeFacts, victims: Victims) -> ZoneAmounts:
        """What the victims hold by zone, or what the pod will take there where that is more."""
        claimed: ZoneAmounts = {}
        for uid in sorted(victims):
            for zone, amounts in holdings(facts.ledger, facts.ledger.charges[uid]).items():
                target = claimed.setdefault(zone, {})
                for name, amount in amounts.items():
                    target[name] = target.get(name, 0) + amount
        for zone, amounts in self._own(facts, victims).items():
            target = claimed.setdefault(zone, {})
            for name, amount in amounts.items():
                target[name] = max(target.get(name, 0), amount)
        return {zone: dict(sorted(claimed[zone].items())) for zone in sorted(claimed)}

    def _own(self, facts: NodeFacts, victims: Victims) -> ZoneAmounts:
        freed = self._without(facts, victims | self.going(facts))
        predicted = predict(freed, self._plan(facts))
        if freed.report is None:
            return {}
        return expected(
            self._shape.demand(freed.report.tracked), predicted, freed.report, freed.zone_ids
        )


def _groups(facts: NodeFacts, candidates: list[str]) -> list[list[str]]:
    """Those that hold something in one zone, zone by zone, and all of them."""
    held = {uid: holdings(facts.ledger, facts.ledger.charges[uid]) for uid in candidates}
    groups = [[uid for uid in candidates if zone in held[uid]] for zone in facts.zone_ids]
    return [*(group for group in groups if len(group) < len(candidates)), candidates]
