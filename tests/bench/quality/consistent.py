"""Every kubelet state that is consistent with the received information, and whether all of them
admit a pod: no bounds, no budget.

1. The input is the kubelet's whole state at the newest report, the pods sent since and when, the
pods reported running, and the pods reported ended.

2. An order that is certain is kept: a pod that was reported running came before a pod that was sent
later; a pod that started in an earlier second of the node's clock than another finished came before
that end. Everything else came in any order, and an unreported pod may have come or not.

3. A pod that ended unreported is assumed to run: no scheduler can know better, and the measures
count the consequences separately.

This module does not know the ledger or a scheduler's bounds.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from shared.domain.pod import Pod
from shared.kubelet import admission
from shared.kubelet.cpuset import union
from shared.kubelet.device_state import Registered
from shared.kubelet.machine import KubeletState

# Moments of one node beyond which the pod waits.
MOST_MOMENTS = 2_000

UNHEARD = math.inf
# A uid that no pod has.
NEWCOMER = ""


class Sent(msgspec.Struct):
    """A pod on the node: when it was sent, observed to run and observed to have ended, in seconds
    of the scheduler's clock; started and finished in whole seconds of the node's clock, 0 for
    unknown.
    """

    pod: Pod
    sent_s: float
    runs_s: float = UNHEARD
    ended_s: float = UNHEARD
    started_s: int = 0
    finished_s: int = 0

    @property
    def came_s(self) -> float:
        """The earliest time at which it is known to have been admitted."""
        return min(self.runs_s, self.ended_s)


class Step(NamedTuple):
    """An admission or an end, not before `first_s` and observed at `last_s`; `clock_s` is the
    node's time.
    """

    uid: str
    ends: bool
    first_s: float
    last_s: float
    clock_s: int


class Moment(NamedTuple):
    """One state of the kubelet, and the events that have yet to happen."""

    state: KubeletState
    ahead: frozenset[Step]


class Moments(NamedTuple):
    """Every state in which the node may be now. `doomed` are kinds of pending pods that may be
    rejected regardless of any other pod.
    """

    now: tuple[Moment, ...]
    doomed: frozenset[Hashable]


class TooManyError(Exception):
    """More moments than are followed."""


class Consistent:
    """One node as its scheduler may know it."""

    def __init__(self, state: KubeletState) -> None:
        self._base, self._base_s = state, -math.inf
        self._sent: dict[str, Sent] = {}
        self._moments: Moments | None = None
        self._alike: dict[Hashable, KubeletState] = {}
        self._followed: dict[tuple[int, str, bool], KubeletState | None] = {}

    # -- what is heard
    # ----------------------------------------------------------------------------------------------

    def sent(self, pod: Pod, now_s: float) -> None:
        """Note that the pod was placed here."""
        self._sent[pod.uid] = Sent(pod, now_s)
        self._moments = None

    def runs(self, uid: str, now_s: float, started_s: int = 0) -> None:
        """Note that the API reports the pod as running."""
        if uid in self._sent:
            self._sent[uid].runs_s, self._sent[uid].started_s = now_s, started_s
            self._moments = None

    def ended(
        self, uid: str, refused: bool, now_s: float, started_s: int = 0, finished_s: int = 0
    ) -> None:
        """Note that the API reports the pod's end. A `refused` pod held nothing."""
        sent = self._sent.get(uid)
        if sent is None:
            return
        sent.ended_s, sent.started_s, sent.finished_s = now_s, started_s, finished_s
        if refused:
            del self._sent[uid]
        self._moments = None

    def reported(self, state: KubeletState, made_s: float) -> None:
        """Record that the kubelet was in this state at that time. Earlier pods that are not in the
        state have ended.
        """
        self._base, self._base_s = state, made_s
        self._alike, self._followed = {}, {}
        self._sent = {
            uid: sent
            for uid, sent in self._sent.items()
            if uid in state.pods or sent.came_s > made_s
        }
        for uid, active in state.pods.items():
            self._sent.setdefault(uid, Sent(active.pod, -math.inf, runs_s=made_s))
        self._moments = None

    # -- what follows
    # ----------------------------------------------------------------------------------------------

    def admits(self, pod: Pod) -> bool:
        """Return whether the kubelet admits another pod like this one in every state, without harm
        to a pending pod.

        The pod stands for its kind. It may be on the node already, where a kubelet would admit it
        again for free.
        """
        newcomer = msgspec.structs.replace(pod, uid=NEWCOMER)
        try:
            moments = self.moments()
            moments_after = []
            for moment in moments.now:
                state = self._with(moment.state, newcomer)
                if state is None:
                    return False
                if moment.ahead:
                    moments_after.append(Moment(state, moment.ahead))
            return not moments_after or self._explored(moments_after).doomed <= moments.doomed
        except TooManyError:
            return False

    def moments(self) -> Moments:
        """Return every moment in which the node may be now. Raises TooManyError."""
        if self._moments is None:
            self._moments = self._explored([Moment(self._base, frozenset(self._steps()))])
        return self._moments

    def arrived(self) -> Iterator[KubeletState]:
        """Return the states after all pending pods have come."""
        for moment in self.moments().now:
            if not moment.ahead:
                yield moment.state

    def _steps(self) -> Iterator[Step]:
        for uid, sent in self._sent.items():
            first_s = max(sent.sent_s, self._base_s)
            if uid not in self._base.pods:
                yield Step(uid, False, first_s, sent.came_s, sent.started_s)
            if sent.ended_s < UNHEARD:
                yield Step(uid, True, first_s, sent.ended_s, sent.finished_s)

    def _explored(self, starts: Iterable[Moment]) -> Moments:
        explored: dict[tuple[int, frozenset[Step]], Moment] = {}
        doomed: set[Hashable] = set()
        pending = list(starts)
        while pending:
            moment = pending.pop()
            key = id(moment.state), moment.ahead
            if key in explored:
                continue
            explored[key] = moment
            if len(explored) > MOST_MOMENTS:
                raise TooManyError
            for step in _next(moment.ahead):
                pending += self._after(moment, step, doomed)
        frontier = [
            moment
            for moment in explored.values()
            if all(step.last_s == UNHEARD for step in moment.ahead)
        ]
        return Moments(tuple(frontier), frozenset(doomed))

    def _after(self, moment: Moment, step: Step, doomed: set[Hashable]) -> list[Moment]:
        """Return the moments in which no pod that was reported running was rejected."""
        state, ahead = self._changed(moment.state, step.uid, step.ends), moment.ahead - {step}
        if state is not None:
            return [Moment(state, ahead)]
        if step.last_s < UNHEARD:
            return []
        doomed.add(_kind(self._sent[step.uid].pod))
        return [Moment(moment.state, ahead)]

    def _changed(self, state: KubeletState, uid: str, ends: bool) -> KubeletState | None:
        """Return the state after an end or an admission, None for a refusal. Each is
        computed once.
        """
        key = id(state), uid, ends
        if key not in self._followed:
            self._followed[key] = (
                self._without(state, uid) if ends else self._with(state, self._sent[uid].pod)
            )
        return self._followed[key]

    def _without(self, state: KubeletState, uid: str) -> KubeletState:
        return self._one(admission.drop_stale(admission.remove(state, uid)))

    def _with(self, state: KubeletState, pod: Pod) -> KubeletState | None:
        verdict = admission.admit(state, pod)
        return (
            self._one(admission.start_containers(admission.drop_stale(verdict.state), pod))
            if verdict.admitted
            else None
        )

    def _one(self, state: KubeletState) -> KubeletState:
        """Return the one value that stands for all states with the same holdings. It is kept so
        that its id is its own.
        """
        return self._alike.setdefault(_key(state), state)


def _next(ahead: frozenset[Step]) -> Iterator[Step]:
    """Yield every event that may come first, because no other one certainly came before it."""
    soonest_s = min((step.last_s for step in ahead), default=UNHEARD)
    coming = [step for step in ahead if not step.ends]
    for step in ahead:
        if step.first_s < soonest_s and not (
            step.ends and any(_comes_first(earlier, step) for earlier in coming)
        ):
            yield step


def _comes_first(admission: Step, end: Step) -> bool:
    """Return whether the end comes first: the pod's own, or one in an earlier second of the node's
    clock. Reports win over clocks.
    """
    is_own_end = admission.uid == end.uid
    return is_own_end or (0 < admission.clock_s < end.clock_s and admission.first_s < end.last_s)


def _kind(pod: Pod) -> Hashable:
    return tuple((part.kind, tuple(sorted(part.requests.items()))) for part in pod.containers)


def _key(state: KubeletState) -> Hashable:
    """Return the holdings by pod. The ids of CPUs matter under every policy: whether a container
    takes the CPU of an init container depends on which cores are free.
    """
    pools = state.devices.registered
    cpus = {uid: union(cpus_of_pod.values()) for uid, cpus_of_pod in state.cpu.entries.items()}
    tables = {
        number: [table.free for table in node.tables.values()]
        for number, node in state.memory.nodes.items()
    }
    return (
        frozenset(cpus.items()),
        frozenset(
            (uid, *_devices(cpus_of_pod, pools)) for uid, cpus_of_pod in state.devices.held.items()
        ),
        frozenset(
            (number, node.cells, node.assignments, *tables[number])
            for number, node in state.memory.nodes.items()
        ),
        frozenset(
            (uid, name, blocks)
            for uid, cpus_of_pod in state.memory.entries.items()
            for name, blocks in cpus_of_pod.items()
        ),
    )


def _devices(
    holdings: Mapping[str, Mapping[str, Collection[str]]], pools: Registered
) -> list[tuple[str, int]]:
    """Return the resource and zones of each device. Which container has it does not matter."""
    return sorted(
        (name, pools[name][device_id].mask or 0)
        for part in holdings.values()
        for name, ids in part.items()
        for device_id in ids
    )
