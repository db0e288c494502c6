"""The search for victims: which few pods of lower priority on which node make room for a pod.

1. No pod is evicted for a pod that may have room already.
2. Victims count only if the pod would then be admitted in every possible state: the ledger without
   them (`what_if`) is filtered like any node.
3. If the pod needs zones, nodes with reports without placements are skipped, because it is unknown
   what an eviction frees there. Nodes with an unconfirmed pod wait for its report: before that,
   more victims would be evicted than necessary.
4. More room can be worse for a pod of several containers. For such pods small sets are tried, too,
   so that no pod is evicted that was not in the way.
5. If report and ledger show the kubelet's exact state (`known_state`), the kubelet model decides
   which pods fit after evictions. A kubelet chooses at random among devices, which may lie in
   different zones, so every choice is tried. Pods that request something of a custom provider are
   decided by the filter.

Must not know disruption budgets, the log or a clock.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from itertools import combinations, islice

import msgspec

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
from services.scheduler.owned.admission import booked_nodes, zone_allocation
from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.node_arrays import Bools
from services.scheduler.snapshot.node_info import NodeInfo
from services.scheduler.snapshot.pod_class import BY_KUBELET, Plan, PodClass
from services.scheduler.snapshot.result import Nomination
from services.scheduler.snapshot.topology_policy import is_reported
from shared.domain.pod import Pod
from shared.domain.policies import NONE
from shared.domain.report import Placement
from shared.domain.resources import CPU
from shared.hints.registry import kubelets_own
from shared.hints.splits import splits
from shared.kubelet.admission import Admission, admit, drop_stale, remove
from shared.kubelet.machine import KubeletState
from shared.kubelet.observed import Open, observed
from shared.kubelet.versions import admit_alike
from shared.ledger.confirmation import is_included
from shared.ledger.device_views import is_decided
from shared.ledger.kubelet_rules import possible_rules
from shared.ledger.state import LedgerNode, LedgerPod, ZoneAmounts
from shared.ledger.what_if import expected, holdings, most_without

# The most sets of victims that are checked for one pod.
MOST_CHECKS = 300
# The most nodes that are searched for one pod; the search for the next pod begins at another node.
MOST_NODES = 2_000
# The most nodes whose kubelet state is rebuilt for one pod (a millisecond each), for the question
# whether the pod may fit already, and again for the search for victims. Bounds decide the others.
MOST_STATES = 32
# The most nodes with victims that are compared, in the caller's order.
MOST_FOUND = 16
# The most small sets of victims that are tried on one node for a pod of several containers.
MOST_SETS = 128

Pods = Mapping[str, LedgerPod]
Victims = frozenset[str]
# The highest priority, how many victims, and the sum of priorities.
Cost = tuple[int, int, int]
Candidate = tuple[Cost, NodeInfo, Victims]


def find(
    pod: Pod,
    pod_class: PodClass,
    nodes: Iterable[NodeInfo],
    pods: Pods,
    config: CycleConfig,
    spared: Container[str] = (),
    full: Bools | None = None,
    lowest: int | None = None,
    bookings: Collection[LedgerPod] = (),
) -> Nomination | None:
    """Return the least costly victims: the lowest highest priority, then the fewest, then the
    lowest sum, then the first node.

    `spared` are uids that may not be evicted. `full` are slots of nodes without terminating pods
    whose bounds rule the pod out, and `lowest` is no higher than the priority of any pod: both save
    time only. The pod may use `bookings`. None if no eviction helps, or if the pod may have room
    without one."""
    search = _Search(pod, pod_class, pods, config, spared, bookings)
    node_infos = list(islice(nodes, MOST_NODES))
    # The known state of the first nodes decides, even if amounts say that they are full.
    open_nodes, others = node_infos[:MOST_STATES], node_infos[MOST_STATES:]
    open_nodes += [node for node in others if full is None or not full[node.slot]]
    if any(map(search.may_fit_already, open_nodes)):
        return None
    search.states = MOST_STATES
    least = None if lowest is None else (lowest, 1, lowest)
    candidates = search.over(node_infos, search.on_node, least)
    if candidates == []:
        candidates = search.over(node_infos, search.on_node_by_few, least)
    if not candidates:
        return None
    _, node_info, victims = min(candidates, key=lambda candidate: candidate[0])
    return search.nomination(node_info, search.fewer(node_info, victims))


def nomination_by(
    pod: Pod,
    pod_class: PodClass,
    node_info: NodeInfo,
    victims: Collection[str],
    pods: Pods,
    config: CycleConfig,
) -> Nomination | None:
    """Return the nomination with these victims, whatever their priority; None if the pod would not
    surely fit.
    """
    search = _Search(pod, pod_class, pods, config, ())
    gone = frozenset(victims)
    suffices = search.fits(node_info, gone | search.ending(node_info))
    return search.nomination(node_info, gone) if suffices else None


def still_suffices(
    pod: Pod,
    pod_class: PodClass,
    node_info: NodeInfo,
    victims: Collection[str],
    pods: Pods,
    config: CycleConfig,
    bookings: Collection[LedgerPod] = (),
) -> bool:
    """Return whether the pod, without its own claim, fits once the remaining victims and the pods
    that are terminating have ended.
    """
    search = _Search(pod, pod_class, pods, config, (), bookings)
    remaining = frozenset(uid for uid in victims if uid in node_info.ledger.charges)
    return search.fits(node_info, remaining | search.ending(node_info))


def minimal_victims(
    pod: Pod,
    pod_class: PodClass,
    node_info: NodeInfo,
    offered: Iterable[str],
    needed: Container[str],
    pods: Pods,
    config: CycleConfig,
) -> tuple[str, ...] | None:
    """Return the fewest victims with which the pod surely fits this node, out of the offered pods,
    or out of all evictable pods if these do not suffice. None if no victims help.

    Pods in `needed` stay victims, and so do offered pods that are unknown here or may not be
    evicted. The answer has at least one victim, because kube-scheduler needs one."""
    search, offer = _Search(pod, pod_class, pods, config, ()), tuple(offered)
    candidates, ending = search.candidates(node_info), search.ending(node_info)
    spareable = [uid for uid in candidates if uid in offer and uid not in needed]
    fixed = frozenset(offer) - frozenset(spareable)
    gone = frozenset(uid for uid in fixed if uid in node_info.ledger.charges) | ending
    if fixed and search.fits(node_info, gone):
        return tuple(uid for uid in offer if uid in fixed)
    victims = search.fewest(node_info, spareable, gone)
    if victims is None:
        others = [uid for uid in candidates if uid not in fixed]
        victims = search.fewest(node_info, others, gone)
    if victims is None:
        return None
    if len(victims) > 1:
        pool = [uid for uid in candidates if uid not in fixed]
        if victims <= frozenset(spareable):
            pool = spareable
        victims = search.cheaper(node_info, victims, pool, gone)
    kept = [uid for uid in offer if uid in fixed or uid in victims]
    return (*kept, *sorted(victims.difference(offer)))


class _Search:
    """One pod's search, bounded by `checks` and `states`."""

    def __init__(
        self,
        pod: Pod,
        pod_class: PodClass,
        pods: Pods,
        config: CycleConfig,
        spared: Container[str],
        bookings: Collection[LedgerPod] = (),
    ) -> None:
        self._pod, self._class, self._pods = pod, pod_class, pods
        self._config, self._spared = config, spared
        self._bookings = {entry.pod.uid: entry for entry in bookings}
        self.checks, self.states = MOST_CHECKS, MOST_STATES
        self._states: dict[str, KubeletState | None] = {}

    def may_fit_already(self, node_info: NodeInfo) -> bool:
        """Return whether the pod may have room here now, or once the terminating pods have ended.
        Then it waits for the next report.
        """
        ending = self.ending(node_info)
        freed = self._without(node_info, ending) if ending else node_info
        plan = self._plan(node_info)
        if self._barred(node_info) or not fits_node(self._class.request, freed):
            return False
        if plan.mode not in BY_KUBELET:
            return self._passes(freed, plan)
        state = self._state(node_info)
        if state is not None:
            return admits(state, self._pod, ending)
        if freed.grouped_zones and not plan.needs_search:
            return leaves_open(freed, plan)
        return may_fit(freed, plan) and (leaves_open(freed, plan) or is_known(freed, plan))

    def _state(self, node_info: NodeInfo) -> KubeletState | None:
        """Return the kubelet's state if it is known and decides alone, for the first nodes."""
        if node_info.name not in self._states and self.states > 0:
            live = [self._pods[uid].pod for uid in node_info.ledger.charges if uid in self._pods]
            complete = not node_info.assumed and len(live) == len(node_info.ledger.charges)
            is_exact = complete and kubelet_decides(node_info, self._plan(node_info))
            self.states -= is_exact
            self._states[node_info.name] = known_state(node_info.ledger, live) if is_exact else None
        return self._states.get(node_info.name)

    def over(
        self,
        nodes: Iterable[NodeInfo],
        on_node: Callable[[NodeInfo], Victims | None],
        least: Cost | None,
    ) -> list[Candidate] | None:
        """Return nodes with victims, up to one of the least cost; None if the pod only has to
        wait.
        """
        candidates: list[Candidate] = []
        for node_info in nodes:
            victims = on_node(node_info)
            if victims is not None and not victims:
                return None
            if victims:
                candidates.append((self.cost(victims), node_info, victims))
            if len(candidates) >= MOST_FOUND or self.checks <= 0:
                break
            if victims and candidates[-1][0] == least:
                break
        return candidates

    def on_node(self, node_info: NodeInfo) -> Victims | None:
        """Return the least costly victims on this node; empty if the pod only has to wait, None if
        no set helps.
        """
        candidates, ending = self._evictable_pods(node_info)
        if not candidates or not self.fits(node_info, frozenset(candidates) | ending):
            return None
        if ending and self.fits(node_info, ending):
            return frozenset()
        return self.fewest(node_info, candidates, ending)

    def fewest(self, node_info: NodeInfo, candidates: list[str], ending: Victims) -> Victims | None:
        """Reduce the candidates of each zone, and all candidates together, to pods that must be
        evicted. Return the least costly of these sets, None if none helps."""
        if not candidates:
            return None
        cheapest = min(self.cost(frozenset({uid})) for uid in candidates)
        helping: list[Victims] = []
        for group in _groups(node_info, candidates):
            victims = self._reduced(node_info, group, ending)
            helping += [victims] if victims else []
            if victims and self.cost(victims) == cheapest:
                break
        return min(helping, key=self.cost, default=None)

    def on_node_by_few(self, node_info: NodeInfo) -> Victims | None:
        """Search among small sets of victims. The end of a few pods may help although the end of
        all does not, because containers of one pod compete with each other, also under scope pod.
        """
        if len(self._plan(node_info).demand) < 2:
            return None
        candidates, ending = self._evictable_pods(node_info)
        if candidates and ending and self.fits(node_info, ending):
            return frozenset()
        for victims in self._by_cost(candidates):
            if self.fits(node_info, victims | ending):
                return victims
        return None

    def fewer(self, node_info: NodeInfo, victims: Victims) -> Victims:
        """Return the cheapest set that helps; these victims if none is cheaper."""
        if len(victims) == 1 and len(self._plan(node_info).demand) < 2:
            return victims
        candidates, ending = self._evictable_pods(node_info)
        return self.cheaper(node_info, victims, candidates, ending)

    def cheaper(
        self, node_info: NodeInfo, victims: Victims, candidates: list[str], ending: Victims
    ) -> Victims:
        """Return the cheapest set of candidates that helps; these victims if none is cheaper."""
        limit = self.cost(victims)
        self.checks = max(self.checks, MOST_SETS)
        for subset in self._by_cost(candidates):
            cost = self.cost(subset)
            if cost[:2] > limit[:2]:
                break
            if cost < limit and self.fits(node_info, subset | ending):
                return subset
        return victims

    def _by_cost(self, candidates: list[str]) -> Iterator[Victims]:
        """Yield sets of victims: the lowest highest priority first, then the fewest."""
        return islice(self._sets(candidates), MOST_SETS)

    def _sets(self, candidates: list[str]) -> Iterator[Victims]:
        priorities = {uid: self._pods[uid].pod.priority for uid in reversed(candidates)}
        for top in sorted(set(priorities.values())):
            pool = [uid for uid, priority in priorities.items() if priority <= top]
            for size in range(1, len(pool) + 1):
                for chosen in combinations(pool, size):
                    if any(priorities[uid] == top for uid in chosen):
                        yield frozenset(chosen)

    def _evictable_pods(self, node_info: NodeInfo) -> tuple[list[str], Victims]:
        """Return the pods that may be evicted, and the pods that are terminating. None may be
        evicted if that could not help, or if its effect is unknown.
        """
        ending = self.ending(node_info)
        unknown = self._plan(node_info).mode in BY_KUBELET and obstacle(node_info)
        if node_info.assumed or self._barred(node_info) or unknown:
            return [], ending
        candidates = self.candidates(node_info)
        if candidates and self._could_help(node_info, [*candidates, *ending]):
            return candidates, ending
        return [], ending

    def _barred(self, node_info: NodeInfo) -> bool:
        plan = self._plan(node_info)
        constraints = self._class.pod.constraints
        if constraint_refusal(constraints, node_info.observed, node_info.name) is not None:
            return True
        return blocked(self._class, node_info.profile, plan, self._config) is not None

    def _could_help(self, node_info: NodeInfo, gone: list[str]) -> bool:
        """Check a cheap necessary condition: if everything were freed, some zone would have enough
        for each part that needs one zone.

        It is True if the plan needs a search, or if the kubelet's state is known: listings do not
        show what init containers keep, so that state answers instead.
        """
        plan = self._plan(node_info)
        if (
            plan.needs_search
            or not one_zone_each(node_info, plan)
            or self._state(node_info) is not None
        ):
            return True
        booked = [uid for uid in self._bookings if uid in node_info.ledger.charges]
        room = most_without(node_info.ledger, [*gone, *booked])
        return all(any(fits(part.amounts, zone) for zone in room.values()) for part in plan.parts)

    def _plan(self, node_info: NodeInfo) -> Plan:
        return plan_for(self._class, node_info.profile, self._config)

    def candidates(self, node_info: NodeInfo) -> list[str]:
        """Return the pods that may be evicted, those to be spared first: high priorities, then
        small pods."""
        candidates = []
        for uid in node_info.ledger.charges:
            entry = self._pods.get(uid)
            if entry is not None and self._evictable(uid, entry):
                size = sum(
                    part.amounts.get(CPU, 0) for part in node_info.ledger.charges[uid].demand
                )
                candidates.append((-entry.pod.priority, size, uid))
        return [uid for _, _, uid in sorted(candidates)]

    def _evictable(self, uid: str, entry: LedgerPod) -> bool:
        if entry.pod.priority >= self._pod.priority or entry.stage not in ("bound", "running"):
            return False
        if entry.drawn_from and entry.drawn_from not in self._bookings:
            return False  # Its room would be its booking's again.
        return not (entry.static or entry.terminating or uid in self._spared)

    def ending(self, node_info: NodeInfo) -> Victims:
        """Return the pods that are terminating."""
        return frozenset(
            uid
            for uid in node_info.ledger.charges
            if (entry := self._pods.get(uid)) is not None and entry.terminating
        )

    def _reduced(self, node_info: NodeInfo, group: list[str], ending: Victims) -> Victims | None:
        """Return the group without every pod that can be spared; None if the whole group does not
        help.
        """
        victims = frozenset(group)
        if not victims or not self.fits(node_info, victims | ending):
            return None
        for uid in group:
            fewer = victims - {uid}
            if fewer and self.fits(node_info, fewer | ending):
                victims = fewer
        return victims

    def fits(self, node_info: NodeInfo, gone: Victims) -> bool:
        """Return whether the node surely takes the pod once these pods are gone."""
        self.checks -= 1
        if self.checks < 0:
            return False
        plan = self._plan(node_info)
        state = self._state(node_info) if plan.mode in BY_KUBELET else None
        if state is not None and not self._bookings:
            freed = self._without(node_info, gone)
            return fits_node(self._class.request, freed) and admits(state, self._pod, gone)
        return any(
            fits_node(self._class.request, freed) and self._passes(freed, plan)
            for freed in self._views(node_info, gone)
        )

    def _views(self, node_info: NodeInfo, gone: Victims) -> Iterator[NodeInfo]:
        """Yield the node without these pods: as it is for owners of its bookings, and for others.
        The room of a pod that drew from a booking is the booking's again.
        """
        drawn = {uid: entry.drawn_from for uid in gone if (entry := self._pods.get(uid))}
        for booked, entry in self._bookings.items():
            if booked in node_info.ledger.charges:
                freed = [uid for uid in gone if drawn.get(uid, "") in ("", booked)]
                claimant, config = self._pod.uid, self._config
                yield from booked_nodes(
                    node_info, entry, self._class, claimant, config, freed, self._pods
                )
        yield self._without(node_info, frozenset(uid for uid in gone if not drawn.get(uid)))

    def _passes(self, node_info: NodeInfo, plan: Plan) -> bool:
        if plan.mode == "free":
            return True
        steps = self._config.steps_last_resort
        return filter_result(node_info, self._class, plan, self._config, steps) == ADMITTED

    def _without(self, node_info: NodeInfo, gone: Victims) -> NodeInfo:
        return node_info.hypothetical(gone, self._pods, self._pod.uid, self._config)

    def cost(self, victims: Victims) -> Cost:
        priorities = [self._pods[uid].pod.priority for uid in victims]
        return max(priorities), len(priorities), sum(priorities)

    def nomination(self, node_info: NodeInfo, victims: Victims) -> Nomination:
        """Return the nomination with these victims."""
        uids, charges = tuple(sorted(victims)), node_info.ledger.charges
        allocations = filter(None, (charges[uid].allocation for uid in uids))
        devices = tuple(card for allocation in allocations for card in allocation.devices)
        return Nomination(node_info.name, uids, self._claim(node_info, victims), devices)

    def _claim(self, node_info: NodeInfo, victims: Victims) -> ZoneAmounts:
        """Return the claim by zone: what the victims hold, or what the pod will take if that is
        more."""
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
        gone, plan = victims | self.ending(node_info), self._plan(node_info)
        fitting = (view for view in self._views(node_info, gone) if self._passes(view, plan))
        freed = next(fitting, None) or self._without(node_info, gone)
        if plan.mode == "owned":
            allocation = zone_allocation(freed, plan, self._pod, None)
            return allocation.zones if allocation is not None else {}
        predicted = predict(freed, plan)
        if freed.report is None:
            return {}
        return expected(
            self._class.kind.demand_on(freed.report), predicted, freed.report, freed.zone_ids
        )


def _groups(node_info: NodeInfo, candidates: list[str]) -> list[list[str]]:
    """Return the candidates that hold something in a zone, zone by zone, and all candidates."""
    ledger = node_info.ledger
    zones = {uid: holdings(ledger, ledger.charges[uid]) for uid in candidates}
    groups = [[uid for uid in candidates if zone in zones[uid]] for zone in node_info.zone_ids]
    return [*(group for group in groups if len(group) < len(candidates)), candidates]


# -- the kubelet's exact state
# --------------------------------------------------------------------------------------------------


def known_state(node: LedgerNode, pods: Collection[Pod]) -> KubeletState | None:
    """Return the kubelet's state if every pod is confirmed and the report leaves nothing open, else
    None. `pods` are the node's.
    """
    if node.report is None or node.basis is not node.report or node.listed is None or node.claims:
        return None
    listed, charges = node.listed, node.charges.values()
    if any(not charge.confirmed or charge.alias is not None for charge in charges):
        return None
    if not all(is_included(charge, listed.get(charge.key, ()), node.report) for charge in charges):
        return None  # It runs, and the report is older: what it holds is unknown.
    placements: list[Placement] = [placement for key in sorted(listed) for placement in listed[key]]
    rules, *others = possible_rules(node).rules
    if not all(admit_alike(rules, other) for other in others):
        return None
    report = msgspec.structs.replace(node.report, placements=tuple(placements))
    state = observed(report, pods, rules)
    return None if isinstance(state, Open) else state


def kubelet_decides(node_info: NodeInfo, plan: Plan) -> bool:
    """Return whether the kubelet model gives the same answer as the filter.

    It does not if a custom provider is asked, if a label or an annotation aligns what the kubelet
    does not, or if the kubelet's preference depends on devices that no report lists, or on its
    version.
    """
    report, asked = node_info.report, {name for part in plan.demand for name in part.amounts}
    if report is None or not kubelets_own(asked):
        return False
    if not is_decided(node_info.ledger, plan.rule.policy, asked):
        return False
    return is_reported(plan.rule, report) and set(node_info.profile.tracked) == set(report.tracked)


def admits(state: KubeletState, pod: Pod, gone: Collection[str] = ()) -> bool:
    """Return whether this kubelet surely admits the pod once these have ended."""
    for uid in sorted(gone):
        state = remove(state, uid)
    return admitted_whatever_it_picks(drop_stale(state), pod)


# Admissions that are tried for one pod.
MOST_PICKS = 64

# The zones of a device, in each resource that has one of its id.
Places = tuple[int | None, ...]


def admitted_whatever_it_picks(state: KubeletState, pod: Pod) -> bool:
    """Return whether every choice of devices admits the pod; False if there are too many to try."""
    tried = islice(admissions(state, pod), MOST_PICKS + 1)
    return all(result.admitted and number < MOST_PICKS for number, result in enumerate(tried))


def admissions(state: KubeletState, pod: Pod) -> Iterator[Admission]:
    """Yield one admission for each combination of choices, nearly always one. Of more than
    MOST_PICKS some may be left out.
    """
    pending: list[tuple[int, ...]] = [()]
    while pending:
        picks = _Picks(state, pending.pop())
        yield admit(state, pod, picks.pick)
        pending += picks.others()


class _Picks:
    """Chooses by a script, and the first way beyond its end; remembers the number of ways.

    Devices that lie in the same zones are alike (under policy none all of a resource): of those the
    lowest ids are taken."""

    def __init__(self, state: KubeletState, script: tuple[int, ...]) -> None:
        self._pools = (
            list(state.devices.registered.values())
            if state.kubelet.config.topology_policy != NONE
            else []
        )
        self._script, self._chosen, self._ways = script, list[int](), list[int]()

    def pick(self, ids: Collection[str], count: int) -> list[str]:
        """Return so many of these."""
        alike: dict[Places, list[str]] = {}
        for device in sorted(ids):
            places = tuple([pool[device].mask for pool in self._pools if device in pool])
            alike.setdefault(places, []).append(device)
        ways = list(islice(splits(count, [len(group) for group in alike.values()]), MOST_PICKS + 1))
        step = len(self._chosen)
        self._chosen.append(self._script[step] if step < len(self._script) else 0)
        self._ways.append(len(ways))
        picked = list[str]()
        for group, number in zip(alike.values(), ways[self._chosen[step]], strict=True):
            picked += group[:number]
        return picked

    def others(self) -> Iterator[tuple[int, ...]]:
        """Yield the scripts that differ from this one beyond its end."""
        for step in range(len(self._script), len(self._chosen)):
            yield from ((*self._chosen[:step], way) for way in range(1, self._ways[step]))
