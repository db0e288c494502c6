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

from services.scheduler.filter.constraints.predicates import constraint_refusal, fits_node
from services.scheduler.filter.topology.bounds import fits, one_zone_each
from services.scheduler.filter.topology.fit import (
    ADMITTED,
    blocked,
    filter_result,
    is_known,
    leaves_open,
    may_fit,
    obstacle,
    plan_for,
)
from services.scheduler.filter.topology.predict import predict
from services.scheduler.preempt.kubelet_state import admits, known_state, kubelet_decides
from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.node_info import NodeInfo
from services.scheduler.snapshot.pod_class import Plan, PodClass
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
Found = tuple[tuple[int, int, int, str], NodeInfo, Victims]
"""(cost, node, victims)."""


def find(
    pod: Pod,
    pod_class: PodClass,
    nodes: Iterable[NodeInfo],
    pods: Pods,
    config: CycleConfig,
    spared: Container[str] = (),
) -> Nomination | None:
    """The least costly victims: the lowest highest priority, then the fewest, then the lowest sum,
    then the node's name.

    `spared` are uids that may not be evicted. None when no eviction helps, or when room is on its
    way already."""
    search = _Search(pod, pod_class, pods, config, spared)
    looked = list(islice(nodes, MOST_NODES))
    if any(map(search.may_fit_already, looked)):
        return None
    search.states = MOST_STATES
    found = search.over(looked, search.on_node)
    if found == []:
        found = search.over(looked, search.on_node_by_few)
    if not found:
        return None
    _, node_info, victims = min(found, key=lambda each: each[0])
    victims = search.fewer(node_info, victims)
    return Nomination(node_info.name, tuple(sorted(victims)), search.claim(node_info, victims))


def still_suffices(
    pod: Pod,
    pod_class: PodClass,
    node_info: NodeInfo,
    victims: Collection[str],
    pods: Pods,
    config: CycleConfig,
) -> bool:
    """Would the pod, its own claim given back, fit once the victims that are left, and whoever is
    going anyway, are gone?
    """
    search = _Search(pod, pod_class, pods, config, ())
    return search.fits(
        node_info,
        frozenset(uid for uid in victims if uid in node_info.ledger.charges)
        | search.going(node_info),
    )


def widened(
    pod: Pod,
    pod_class: PodClass,
    node_info: NodeInfo,
    offered: Iterable[str],
    pods: Pods,
    config: CycleConfig,
) -> tuple[str, ...] | None:
    """Victims by which the pod surely fits this node: those that are offered, and the fewest beside
    them; None when none help.
    """
    search, given = _Search(pod, pod_class, pods, config, ()), tuple(offered)
    known = frozenset(uid for uid in given if uid in node_info.ledger.charges) | search.going(
        node_info
    )
    if search.fits(node_info, known):
        return given
    more = [uid for uid in search.candidates(node_info) if uid not in known]
    left = frozenset(more)
    if not more or not search.fits(node_info, known | left):
        return None
    for uid in more:
        if search.fits(node_info, known | (left - {uid})):
            left -= {uid}
    return (*given, *sorted(left))


class _Search:
    """One pod's search, bounded by `checks` and `states`."""

    def __init__(
        self, pod: Pod, pod_class: PodClass, pods: Pods, config: CycleConfig, spared: Container[str]
    ) -> None:
        self._pod, self._shape, self._pods, self._config, self._spared = (
            pod,
            pod_class,
            pods,
            config,
            spared,
        )
        self.checks, self.states = MOST_CHECKS, MOST_STATES
        self._states: dict[str, KubeletState | None] = {}

    def may_fit_already(self, node_info: NodeInfo) -> bool:
        """May the pod have room here as it stands, or once those have gone that are going? Then it
        waits for the next report.
        """
        going = self.going(node_info)
        freed, plan = self._without(node_info, going) if going else node_info, self._plan(node_info)
        if self._barred(node_info) or not fits_node(self._shape.request, freed):
            return False
        if plan.mode == "free":
            return True
        state = self._state(node_info)
        if state is not None:
            return admits(state, self._pod, going)
        if freed.grouped_zones and not plan.needs_search:
            return leaves_open(freed, plan)
        return may_fit(freed, plan) and (leaves_open(freed, plan) or is_known(freed, plan))

    def _state(self, node_info: NodeInfo) -> KubeletState | None:
        """What the node's kubelet holds, where that is known and it alone decides, for the first
        nodes that ask.
        """
        if node_info.name not in self._states and self.states > 0:
            live = [self._pods[uid].pod for uid in node_info.ledger.charges if uid in self._pods]
            complete = not node_info.assumed and len(live) == len(node_info.ledger.charges)
            known = complete and kubelet_decides(node_info, self._plan(node_info))
            self.states -= known
            self._states[node_info.name] = known_state(node_info.ledger, live) if known else None
        return self._states.get(node_info.name)

    def over(
        self, nodes: Iterable[NodeInfo], on_node: Callable[[NodeInfo], Victims | None]
    ) -> list[Found] | None:
        """Nodes with a way out; None when the pod need only wait."""
        found: list[Found] = []
        for node_info in nodes:
            victims = on_node(node_info)
            if victims is not None and not victims:
                return None
            if victims:
                found.append((self.cost(node_info, victims), node_info, victims))
            if len(found) >= MOST_FOUND or self.checks <= 0:
                break
        return found

    def on_node(self, node_info: NodeInfo) -> Victims | None:
        """The least costly victims here; empty when the pod need only wait, None when nothing
        helps.
        """
        candidates, going = self._open(node_info)
        if not candidates or not self.fits(node_info, frozenset(candidates) | going):
            return None
        if going and self.fits(node_info, going):
            return frozenset()
        sets = [self._fewest(node_info, group, going) for group in _groups(node_info, candidates)]
        return min(
            (each for each in sets if each),
            key=lambda each: self.cost(node_info, each),
            default=None,
        )

    def on_node_by_few(self, node_info: NodeInfo) -> Victims | None:
        """The same where the end of everybody does not help, but that of a few may: containers of
        one pod stand in each other's way, under scope pod too."""
        if len(self._plan(node_info).demand) < 2:
            return None
        candidates, going = self._open(node_info)
        if candidates and going and self.fits(node_info, going):
            return frozenset()
        return next(
            (each for each in self._by_cost(candidates) if self.fits(node_info, each | going)), None
        )

    def fewer(self, node_info: NodeInfo, victims: Victims) -> Victims:
        """The cheapest set that helps, these victims when none cheaper is found."""
        if len(victims) == 1 and len(self._plan(node_info).demand) < 2:
            return victims
        (candidates, going), limit = self._open(node_info), self.cost(node_info, victims)
        self.checks = max(self.checks, MOST_SETS)
        for each in self._by_cost(candidates):
            if self.cost(node_info, each) < limit and self.fits(node_info, each | going):
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

    def _open(self, node_info: NodeInfo) -> tuple[list[str], Victims]:
        """(who may be evicted, who is going anyway); nobody where an eviction could not help, or
        nobody could tell.
        """
        going = self.going(node_info)
        if (
            node_info.assumed
            or self._barred(node_info)
            or (self._plan(node_info).mode != "free" and obstacle(node_info))
        ):
            return [], going
        candidates = self.candidates(node_info)
        return (
            candidates if candidates and self._could(node_info, [*candidates, *going]) else []
        ), going

    def _barred(self, node_info: NodeInfo) -> bool:
        plan = self._plan(node_info)
        closed = constraint_refusal(self._shape.pod.constraints, node_info.observed, node_info.name)
        return (
            closed is not None
            or blocked(self._shape, node_info.profile, plan, self._config) is not None
        )

    def _could(self, node_info: NodeInfo, gone: list[str]) -> bool:
        """Cheap and necessary: with all they hold given back, some zone has as much as each part
        that needs one zone. What init containers keep no listing gives back: where the kubelet's
        state is known it answers instead. Amounts bound nothing where the plan says so."""
        plan = self._plan(node_info)
        if (
            plan.needs_search
            or not one_zone_each(node_info, plan)
            or self._state(node_info) is not None
        ):
            return True
        room = most_without(node_info.ledger, gone)
        return all(any(fits(part.amounts, zone) for zone in room.values()) for part in plan.parts)

    def _plan(self, node_info: NodeInfo) -> Plan:
        return plan_for(self._shape, node_info.profile, self._config)

    def candidates(self, node_info: NodeInfo) -> list[str]:
        """Who may be evicted, those to be spared first: high priorities, then small pods."""
        found = []
        for uid in node_info.ledger.charges:
            entry = self._pods.get(uid)
            if entry is not None and self._evictable(uid, entry):
                size = sum(
                    part.amounts.get(CPU, 0) for part in node_info.ledger.charges[uid].demand
                )
                found.append((-entry.pod.priority, size, uid))
        return [uid for _, _, uid in sorted(found)]

    def _evictable(self, uid: str, entry: LedgerPod) -> bool:
        lower = entry.pod.priority < self._pod.priority
        return (
            lower
            and entry.stage in ("bound", "running")
            and not (entry.static or entry.terminating or uid in self._spared)
        )

    def going(self, node_info: NodeInfo) -> Victims:
        """Pods that are being deleted already."""
        return frozenset(
            uid
            for uid in node_info.ledger.charges
            if (entry := self._pods.get(uid)) is not None and entry.terminating
        )

    def _fewest(self, node_info: NodeInfo, group: list[str], going: Victims) -> Victims | None:
        """The group less everybody who can be spared; None when even the whole group does not help."""
        left = frozenset(group)
        if not left or not self.fits(node_info, left | going):
            return None
        for uid in group:
            fewer = left - {uid}
            if fewer and self.fits(node_info, fewer | going):
                left = fewer
        return left

    def fits(self, node_info: NodeInfo, gone: Victims) -> bool:
        """Would the node surely take the pod without these?"""
        self.checks -= 1
        if self.checks < 0:
            return False
        freed, plan = self._without(node_info, gone), self._plan(node_info)
        if not fits_node(self._shape.request, freed):
            return False
        if plan.mode == "free":
            return True
        state = self._state(node_info)
        if state is not None:
            return admits(state, self._pod, gone)
        return (
            filter_result(freed, self._shape, plan, self._config, self._config.steps_last_resort)
            == ADMITTED
        )

    def _without(self, node_info: NodeInfo, gone: Victims) -> NodeInfo:
        return node_info.hypothetical(gone, self._pods, self._pod.uid, self._config)

    def cost(self, node_info: NodeInfo, victims: Victims) -> tuple[int, int, int, str]:
        priorities = [self._pods[uid].pod.priority for uid in victims]
        return max(priorities), len(priorities), sum(priorities), node_info.name

    def claim(self, node_info: NodeInfo, victims: Victims) -> ZoneAmounts:
        """What the victims hold by zone, or what the pod will take there where that is more."""
        claimed: ZoneAmounts = {}
        for uid in sorted(victims):
            for zone, amounts in holdings(node_info.ledger, node_info.ledger.charges[uid]).items():
                target = claimed.setdefault(zone, {})
                for name, amount in amounts.items():
                    target[name] = target.get(name, 0) + amount
        for zone, amounts in self._own(node_info, victims).items():
            target = claimed.setdefault(zone, {})
            for name, amount in amounts.items():
                target[name] = max(target.get(name, 0), amount)
        return {zone: dict(sorted(claimed[zone].items())) for zone in sorted(claimed)}

    def _own(self, node_info: NodeInfo, victims: Victims) -> ZoneAmounts:
        freed = self._without(node_info, victims | self.going(node_info))
        predicted = predict(freed, self._plan(node_info))
        if freed.report is None:
            return {}
        return expected(
            self._shape.kind.demand(freed.report.tracked), predicted, freed.report, freed.zone_ids
        )


def _groups(node_info: NodeInfo, candidates: list[str]) -> list[list[str]]:
    """Those that hold something in one zone, zone by zone, and all of them."""
    held = {uid: holdings(node_info.ledger, node_info.ledger.charges[uid]) for uid in candidates}
    groups = [[uid for uid in candidates if zone in held[uid]] for zone in node_info.zone_ids]
    return [*(group for group in groups if len(group) < len(candidates)), candidates]
