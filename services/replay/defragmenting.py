"""`topolog plan defragment`: the cheapest moves that make room for pods of a shape. Pure but
for `wanted_pod`, which reads the log.

1. One step makes room for one pod: pods of one node are evicted, the pod takes the node, and the
   scheduler places each evicted pod again on the cluster as it then is (`what_if`). A step in which
   an evicted pod would wait is not taken.
2. The cost of a step is the highest priority of its pods, then their number. The search for victims
   of preemption gives the least cost at which a node has room. From there on, all sets of its pods
   are tried in order of cost. If MOST_CHECKS sets do not suffice, the plan is not `is_cheapest`.
3. Never moved: static and terminating pods, pods of a higher priority than the shape, pods of a
   gang, pods in the room of a booking (which gets it back), pods that the caller spares, and a pod
   twice. Of each disruption budget a step evicts no more than it allows.
4. Pods of one node alone are moved. A move that needs another move first is not searched for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from itertools import combinations

import msgspec

from services.replay.deciding_state import placing_at
from services.replay.fragmentation import numbered
from services.replay.names import require_pod
from services.replay.shapes import pod_of, shape_of
from services.scheduler.filter.constraints.predicates import constraint_refusal
from services.scheduler.preempt.search import find, nomination_by
from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.node_info import NodeInfo
from services.scheduler.snapshot.result import Nomination, Placed
from services.scheduler.state.state import SchedulerState
from shared.domain.pod import Pod
from shared.eventlog.port import EventLog
from shared.eventlog.whole_stream import readable_events_of
from shared.events import streams
from shared.events.cluster_events import PodObserved
from shared.events.quarantine import QuarantinedStreams
from shared.ledger.next_report import reported_without
from shared.ledger.state import LedgerNode, LedgerPod
from shared.ledger.what_if import what_if

# The most sets of pods that are tried to make room for one pod.
MOST_CHECKS = 2_000
# Admissions of the kubelet search: a plan has more time than a scheduler.
STEPS = 1 << 15

# (highest priority, number of pods, node, uids)
Candidate = tuple[int, int, str, tuple[str, ...]]


class Budget(msgspec.Struct, frozen=True):
    """A disruption budget: the pods that it covers, and how many may be evicted now."""

    name: str
    uids: frozenset[str]
    allowed: int


class Move(msgspec.Struct, frozen=True):
    """One pod to evict, and where the scheduler would place it again. `zones` are predicted."""

    pod: str
    uid: str
    priority: int
    node: str
    to: str
    zones: dict[str, tuple[int, ...]] = {}


class Step(msgspec.Struct, frozen=True):
    """Room for one pod on `node`, without moves if it has room already."""

    node: str
    zones: dict[str, tuple[int, ...]]
    moves: tuple[Move, ...] = ()


class MovePlan(msgspec.Struct, frozen=True):
    """The steps of a plan. `missing` pods get no room. `is_cheapest` says that no step of this kind
    is cheaper.
    """

    steps: tuple[Step, ...]
    missing: int
    is_cheapest: bool


def defragment(
    state: SchedulerState,
    cycle: CycleConfig,
    pod: Pod,
    count: int,
    spared: Iterable[str] = (),
    budgets: Iterable[Budget] = (),
    quarantined: QuarantinedStreams | None = None,
) -> MovePlan:
    """Return the moves that make room for `count` pods like this one. `spared` are uids of pods
    that stay.
    """
    planner = Planner(state, cycle, spared, budgets, quarantined)
    return planner.plan([numbered(pod, number + 1) for number in range(count)])


async def wanted_pod(log: EventLog, shape: str, priority: int) -> Pod:
    """Return a pod that requests the shape, or the newest pod of the log with that name. Raises
    FilterError.
    """
    if "=" in shape:
        return pod_of(shape_of(shape), priority)
    uid = (await require_pod(log, shape))[-1]
    history = [event async for _, event in readable_events_of(log, streams.pod(uid))]
    return next(event.pod for event in reversed(history) if isinstance(event, PodObserved))


class Planner:
    """The cluster after the steps so far."""

    def __init__(
        self,
        state: SchedulerState,
        cycle: CycleConfig,
        spared: Iterable[str],
        budgets: Iterable[Budget],
        quarantined: QuarantinedStreams | None,
    ) -> None:
        trusting = msgspec.structs.replace(
            cycle, prediction="trust", steps_last_resort=STEPS, steps_pod=STEPS
        )
        self._placing, self._cycle = placing_at(state, trusting, quarantined), cycle
        self._pods = dict(state.ledger.pods)
        self._spared, self._budgets = frozenset(spared), tuple(budgets)
        self.is_cheapest = True

    def plan(self, pods: Sequence[Pod]) -> MovePlan:
        """Return steps for these pods, up to the first for which there is none."""
        steps = list[Step]()
        for pod in pods:
            step = self._step(pod)
            if step is None:
                break
            steps.append(step)
        return MovePlan(tuple(steps), len(pods) - len(steps), self.is_cheapest)

    def _step(self, pod: Pod) -> Step | None:
        """Return the cheapest step for one more pod, None if there is none."""
        room = self._tried(pod, None)
        return room if room is not None else self._with_moves(pod)

    def again(self, pod: Pod, step: Step) -> Step | None:
        """Return this step as it would be now, None if it makes no room, or none is needed."""
        uids = tuple([move.uid for move in step.moves])
        if not uids:
            return self._tried(pod, None, keep=False)
        node_info = self._placing.node(step.node)
        if node_info is None or not {*uids} <= {*self._movable(pod, node_info)}:
            return None
        if self._tried(pod, None, keep=False) is not None:
            return None
        return self._tried(pod, (0, 0, step.node, uids), keep=False)

    def nomination(self, pod: Pod, step: Step) -> Nomination | None:
        """Return the nomination by which the step is carried out, None if the scheduler would not
        keep it.
        """
        node_info, uids = self._placing.node(step.node), [move.uid for move in step.moves]
        assert node_info is not None
        pod_class = self._placing.evaluator.pod_class(pod)
        return nomination_by(pod, pod_class, node_info, uids, self._pods, self._cycle)

    def _with_moves(self, pod: Pod) -> Step | None:
        least = {candidate[2]: candidate for candidate in self._least(pod)}
        in_order = sorted(least.values())
        upper = next((each for each in in_order if self._tried(pod, each, keep=False)), None)
        sets = merge(*(self._sets(pod, each) for each in in_order))
        for checks, candidate in enumerate(sets):
            if upper is not None and candidate[:2] >= upper[:2]:
                break
            if checks >= MOST_CHECKS:
                self.is_cheapest = False
                break
            step = self._tried(pod, candidate)
            if step is not None:
                return step
        return self._tried(pod, upper) if upper is not None else None

    def _least(self, pod: Pod) -> Iterator[Candidate]:
        """Yield for each node the cheapest set of pods whose eviction makes room there. Nodes that
        evictions cannot help are left out. Whether the evicted pods find other nodes is not asked.
        """
        placing, pod_class = self._placing, self._placing.evaluator.pod_class(pod)
        checks = placing.checks(pod)
        above = msgspec.structs.replace(pod, priority=pod.priority + 1)
        for node_info in placing.nodes():
            movable = self._movable(pod, node_info)
            if not movable or checks.refusal(node_info):
                continue
            if constraint_refusal(pod.constraints, node_info.observed, node_info.name):
                continue
            _, is_blocked = placing.evaluator.plan(pod_class, node_info)
            if is_blocked:
                continue
            stay = node_info.ledger.charges.keys() - movable
            nomination = find(above, pod_class, [node_info], self._pods, placing.config, stay)
            if nomination is not None and nomination.victims:
                top = max(self._pods[uid].pod.priority for uid in nomination.victims)
                yield top, len(nomination.victims), node_info.name, nomination.victims

    def _movable(self, pod: Pod, node_info: NodeInfo) -> list[str]:
        return sorted(
            uid
            for uid in node_info.ledger.charges
            if uid not in self._spared
            and (entry := self._pods.get(uid)) is not None
            and entry.stage in ("bound", "running")
            and entry.pod.priority <= pod.priority
            and not (entry.static or entry.terminating or entry.drawn_from or entry.pod.gang)
        )

    def _sets(self, pod: Pod, least: Candidate) -> Iterator[Candidate]:
        """Yield the sets of pods of one node that cost at least as much, in order of cost."""
        node_info = self._placing.node(least[2])
        assert node_info is not None
        priorities = {uid: self._pods[uid].pod.priority for uid in self._movable(pod, node_info)}
        for top in sorted(set(priorities.values())):
            pool = [uid for uid, priority in priorities.items() if priority <= top]
            for size in range(1, len(pool) + 1):
                if (top, size) < least[:2]:
                    continue
                for chosen in combinations(pool, size):
                    if any(priorities[uid] == top for uid in chosen):
                        yield top, size, node_info.name, chosen

    def _tried(self, pod: Pod, candidate: Candidate | None, keep: bool = True) -> Step | None:
        """Return the step with these moves, None if a pod would wait. With `keep` the cluster is
        left as it is after the step, otherwise as before.
        """
        placing, name, uids = self._placing, "", tuple[str, ...]()
        earlier_nodes = dict[str, LedgerNode]()
        if candidate is not None:
            _, _, name, uids = candidate
            if any(
                len(budget.uids.intersection(uids)) > budget.allowed for budget in self._budgets
            ):
                return None
            earlier_nodes[name] = self._ledger_node(name)
            placing.put_node(reported_without(earlier_nodes[name], uids, self._pods))
        evicted = sorted((self._pods[uid] for uid in uids), key=_order)
        for entry in evicted:
            placing.follow(entry.pod.uid, None)
        placements = self._placed_in_order([pod, *(_again(entry.pod) for entry in evicted)])
        for _, placed in placements:
            earlier_nodes.setdefault(placed.node, self._ledger_node(placed.node))
        is_whole = len(placements) == 1 + len(uids) and name in ("", placements[0][1].node)
        if keep and is_whole:
            self._keep(placements, uids)
        else:
            for new, _ in placements:
                placing.follow(new.uid, None)
            for entry in evicted:
                placing.follow(entry.pod.uid, entry)
            for node in earlier_nodes.values():
                placing.put_node(node)
        if not is_whole:
            return None
        (_, first), *others = placements
        moves = tuple(
            Move(entry.pod.key, entry.pod.uid, entry.pod.priority, name, to.node, to.predicted)
            for entry, (_, to) in zip(evicted, others, strict=True)
        )
        return Step(first.node, first.predicted, moves)

    def _placed_in_order(self, pods: list[Pod]) -> list[tuple[Pod, Placed]]:
        """Place the pods one after another, up to the first that would wait."""
        placements = list[tuple[Pod, Placed]]()
        for pod in pods:
            placed = self._placing.select(pod)
            if not isinstance(placed, Placed):
                break
            self._placing.assume(placed, pod)
            placements.append((pod, placed))
        return placements

    def _keep(self, placements: list[tuple[Pod, Placed]], uids: Iterable[str]) -> None:
        for uid in uids:
            del self._pods[uid]
        for pod, placed in placements:
            self._pods[pod.uid] = LedgerPod(pod, "reserved", placed.node)
        for name in sorted({placed.node for _, placed in placements}):
            node_info = self._placing.node(name)
            assert node_info is not None
            assumed = node_info.assumed.values()
            self._placing.put_node(what_if(node_info.ledger, (), self._pods, newcomers=assumed))

    def _ledger_node(self, name: str) -> LedgerNode:
        node_info = self._placing.node(name)
        assert node_info is not None
        return node_info.ledger


def _order(entry: LedgerPod) -> tuple[int, str]:
    return -entry.pod.priority, entry.pod.uid


def _again(pod: Pod) -> Pod:
    """Return the pod that its controller creates after the eviction."""
    unbound = msgspec.structs.replace(pod.constraints, node_name="")
    return msgspec.structs.replace(
        pod, uid=f"{pod.uid}-again", name=f"{pod.name}-again", constraints=unbound
    )
