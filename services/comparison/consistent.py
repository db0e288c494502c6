"""Every state in which a kubelet may be by what a scheduler has heard, and whether all of them
admit a pod: no bounds, no budget.

Known are the kubelet's whole state when the newest report was made, who was sent there since and
when, who was heard to run and who to have ended. What is certain to have come before something else
came before it (a pod that was heard to run came before one that was sent later; who started in an
earlier second of the node's clock than another finished came before that one's end); all else came
in any order, and who was not heard of may have come or not. A pod that ended unheard is taken to
run: no scheduler knows better, and the measures count what comes of it apart. Must not know the
ledger or a scheduler's bounds.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from shared.domain.pod import Pod
from shared.domain.policies import SINGLE_NUMA_NODE
from shared.kubelet import admission
from shared.kubelet.cpu_state import union
from shared.kubelet.device_state import Registered
from shared.kubelet.machine import KubeletState

MOST_MOMENTS = 2_000
"""Moments of one node beyond which the pod waits."""

UNHEARD = math.inf
NEWCOMER = ""
"""A uid that no pod bears."""


class Sent(msgspec.Struct):
    """A pod on the node: sent at `sent_s`, heard to run and to have ended, in seconds by the
    scheduler's clock; started and finished in whole seconds of the node's clock, 0 for unknown."""

    pod: Pod
    sent_s: float
    runs_s: float = UNHEARD
    ended_s: float = UNHEARD
    started_s: int = 0
    finished_s: int = 0

    @property
    def came_s(self) -> float:
        """When it is known to have been admitted."""
        return min(self.runs_s, self.ended_s)


class Step(NamedTuple):
    """An admission or an end, not before `first_s` and heard of at `last_s`; `clock_s` is what its
    node noted.
    """

    uid: str
    ends: bool
    first_s: float
    last_s: float
    clock_s: int


class Moment(NamedTuple):
    """The kubelet in one of its states, and what has yet to happen."""

    state: KubeletState
    ahead: frozenset[Step]


class Moments(NamedTuple):
    """Every moment in which the node may be now; `doomed` are kinds of pods on their way that may
    be refused whoever comes.
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
    # ---------------------------------------------------------------------------------------------------

    def sent(self, pod: Pod, now_s: float) -> None:
        """The pod was decided to go here."""
        self._sent[pod.uid] = Sent(pod, now_s)
        self._moments = None

    def runs(self, uid: str, now_s: float, started_s: int = 0) -> None:
        """The API says that the pod runs."""
        if uid in self._sent:
            self._sent[uid].runs_s, self._sent[uid].started_s = now_s, started_s
            self._moments = None

    def ended(
        self, uid: str, refused: bool, now_s: float, started_s: int = 0, finished_s: int = 0
    ) -> None:
        """The API says that the pod is over; a `refused` one held nothing."""
        known = self._sent.get(uid)
        if known is None:
            return
        known.ended_s, known.started_s, known.finished_s = now_s, started_s, finished_s
        if refused:
            del self._sent[uid]
        self._moments = None

    def reported(self, state: KubeletState, made_s: float) -> None:
        """The kubelet was in this state then. Who had come by then and is not in it has gone."""
        self._base, self._base_s = state, made_s
        self._alike, self._followed = {}, {}
        self._sent = {
            uid: each
            for uid, each in self._sent.items()
            if uid in state.pods or each.came_s > made_s
        }
        for uid, active in state.pods.items():
            self._sent.setdefault(uid, Sent(active.pod, -math.inf, runs_s=made_s))
        self._moments = None

    # -- what follows
    # ----------------------------------------------------------------------------------------------------

    def admits(self, pod: Pod) -> bool:
        """Does the kubelet take another pod like this one in every state, and does nobody on the
        way lose by it?

        The pod stands for its kind and may itself be on the node, where a kubelet would take it
        again for nothing.
        """
        newcomer = msgspec.structs.replace(pod, uid=NEWCOMER)
        try:
            moments = self.moments()
            after = []
            for moment in moments.now:
                state = self._with(moment.state, newcomer)
                if state is None:
                    return False
                if moment.ahead:
                    after.append(Moment(state, moment.ahead))
            return not after or self._explored(after).doomed <= moments.doomed
        except TooManyError:
            return False

    def moments(self) -> Moments:
        """Every moment in which the node may be now. Raises TooManyError."""
        if self._moments is None:
            self._moments = self._explored([Moment(self._base, frozenset(self._steps()))])
        return self._moments

    def arrived(self) -> Iterator[KubeletState]:
        """The states once everybody has come."""
        for moment in self.moments().now:
            if not moment.ahead:
                yield moment.state

    def _steps(self) -> Iterator[Step]:
        for uid, each in self._sent.items():
            first_s = max(each.sent_s, self._base_s)
            if uid not in self._base.pods:
                yield Step(uid, False, first_s, each.came_s, each.started_s)
            if each.ended_s < UNHEARD:
                yield Step(uid, True, first_s, each.ended_s, each.finished_s)

    def _explored(self, starts: Iterable[Moment]) -> Moments:
        found: dict[tuple[int, frozenset[Step]], Moment] = {}
        doomed: set[Hashable] = set()
        pending = list(starts)
        while pending:
            moment = pending.pop()
            key = id(moment.state), moment.ahead
            if key in found:
                continue
            found[key] = moment
            if len(found) > MOST_MOMENTS:
                raise TooManyError
            for step in _next(moment.ahead):
                pending += self._after(moment, step, doomed)
        now = [
            moment
            for moment in found.values()
            if all(step.last_s == UNHEARD for step in moment.ahead)
        ]
        return Moments(tuple(now), frozenset(doomed))

    def _after(self, moment: Moment, step: Step, doomed: set[Hashable]) -> list[Moment]:
        """Who is heard to have come was not refused: no moment leads on where it would be."""
        state, ahead = self._changed(moment.state, step.uid, step.ends), moment.ahead - {step}
        if state is not None:
            return [Moment(state, ahead)]
        if step.last_s < UNHEARD:
            return []
        doomed.add(_kind(self._sent[step.uid].pod))
        return [Moment(moment.state, ahead)]

    def _changed(self, state: KubeletState, uid: str, ends: bool) -> KubeletState | None:
        """The state after an end or an admission, None for a refusal; computed once."""
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
        """The one value that stands for all states in which everybody holds the same; kept, so that
        its id is its own.
        """
        return self._alike.setdefault(_key(state), state)


def _next(ahead: frozenset[Step]) -> Iterator[Step]:
    """What may happen first: nothing else is certain to have happened before it."""
    soonest_s = min((step.last_s for step in ahead), default=UNHEARD)
    coming = [step for step in ahead if not step.ends]
    for step in ahead:
        if step.first_s < soonest_s and not (
            step.ends and any(_comes_first(each, step) for each in coming)
        ):
            yield step


def _comes_first(admission: Step, end: Step) -> bool:
    """The pod's own, and whose second is an earlier one of the node's clock; what was heard wins
    over clocks.
    """
    own = admission.uid == end.uid
    return own or (0 < admission.clock_s < end.clock_s and admission.first_s < end.last_s)


def _kind(pod: Pod) -> Hashable:
    return tuple((part.kind, tuple(sorted(part.requests.items()))) for part in pod.containers)


def _key(state: KubeletState) -> Hashable:
    """Who holds what. Which of a zone's CPUs makes no difference to a kubelet that takes them of
    one zone alone.
    """
    alone = state.kubelet.topology.policy == SINGLE_NUMA_NODE
    zones, pools = tuple(state.kubelet.cpu.topology.numa_mask.values()), state.devices.registered
    cpus = {uid: union(held.values()) for uid, held in state.cpu.entries.items()}
    tables = {
        number: [table.free for table in node.tables.values()]
        for number, node in state.memory.nodes.items()
    }
    return (
        frozenset(
            (uid, *((mask & zone).bit_count() for zone in zones)) if alone else (uid, mask)
            for uid, mask in cpus.items()
        ),
        frozenset((uid, *_devices(held, pools)) for uid, held in state.devices.held.items()),
        frozenset(
            (number, node.cells, node.assignments, *tables[number])
            for number, node in state.memory.nodes.items()
        ),
        frozenset(
            (uid, name, blocks)
            for uid, held in state.memory.entries.items()
            for name, blocks in held.items()
        ),
    )


def _devices(
    held: Mapping[str, Mapping[str, Collection[str]]], pools: Registered
) -> list[tuple[str, int]]:
    """Resource and zones of each device, whichever container has it."""
    return sorted(
        (name, pools[name][each].mask or 0)
        for part in held.values()
        for name, ids in part.items()
        for each in ids
    )
