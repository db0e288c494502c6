"""The orders in which pods may have been admitted and have ended, as far as the log and the node's
clock leave them open.

1. An admission or an end happened after the pod was sent and before the log has it, in positions of
   the log. So a pod that is known to run was admitted before a pod that was sent later.

2. The node's clock says more. The kubelet notes a pod's start just after its admission, and the
   end of its last container just before what the pod held is free. If one pod started in an
   earlier second than the one in which another finished, the first was admitted before the other
   ended.

3. Everything else may have happened in any order.

Must not know what a pod takes, names, or a clock of the scheduler.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from shared.domain.report import ZonedAmount
from shared.hints.admission_orders import PendingAdmission
from shared.hints.request import HintRequest

# After every position of a log.
NOT_YET = 1 << 62


class EndedPod(NamedTuple):
    """A pod that ended. Positions are of the log, and 0 for unknown.

    If the report lists the pod, `held` has the listed amounts. If not, the pod has a `request`, and
    `since` is True if it is known to have come after the report; otherwise it may have come and
    gone before. It was sent after `sent_at`, was known to run at `runs_at` and to have ended at
    `ended`. By the node's clock it was admitted before second `started_s` was over, and held what
    it had until second `finished_s` had begun; 0 for unknown."""

    held: tuple[ZonedAmount, ...] = ()
    request: HintRequest | None = None
    sent_at: int = 0
    runs_at: int = 0
    ended: int = 0
    since: bool = False
    started_s: int = 0
    finished_s: int = 0


Pod = PendingAdmission | EndedPod


class Transition(NamedTuple):
    """The admission or the end of pod number `pod`: not before position `first`, and in the log at
    `last`. `clock_s` is a second of the node's clock: an admission happened before it was over, an
    end not before it had begun; 0 for unknown."""

    pod: int
    ends: bool
    first: int
    last: int
    clock_s: int


class Orders:
    """Which transitions may happen next.

    Sets of transitions are bit sets; the first one in the log is the lowest bit.
    `everything` has all of them, `admissions` these, `optional` the unnecessary ones, and `of` has
    a set for each pod. By transition, `begun` has all that may have happened before it was in the
    log, and `before` the admissions that must come first.
    """

    def __init__(self, pods: Sequence[Pod]) -> None:
        self.pods = tuple(pods)
        transitions: list[Transition] = []
        for number, pod in enumerate(pods):
            transitions += _transitions(number, pod)
        self.steps = tuple(sorted(transitions, key=_log_order))
        self.everything = (1 << len(self.steps)) - 1
        self.of = [0] * len(pods)
        for index, step in enumerate(self.steps):
            self.of[step.pod] |= 1 << index
        self.optional = 0
        for own_steps, pod in zip(self.of, pods, strict=True):
            self.optional |= own_steps if _is_optional(pod) else 0
        admissions = [(1 << index, step) for index, step in enumerate(self.steps) if not step.ends]
        self.admissions = sum(bit for bit, _ in admissions)
        self.before: list[int] = []
        for end in self.steps:
            earlier = [bit for bit, admission in admissions if _must_come_first(admission, end)]
            self.before.append(sum(earlier))
        self.begun = _begun(self.steps)
        self._nexts: dict[int, tuple[list[int], list[int]]] = {}

    def next(self, ahead: int) -> tuple[list[int], list[int]]:
        """Return the admissions and the ends in `ahead` that may be next.

        If no admission can precede the next end in the log, that end is next: the order of
        several ends between two admissions does not matter."""
        nexts = self._nexts.get(ahead)
        if nexts is None:
            nexts = self._nexts[ahead] = self._next(ahead)
        return nexts

    def _next(self, ahead: int) -> tuple[list[int], list[int]]:
        if not ahead:
            return [], []
        possible = ahead & self.begun[(ahead & -ahead).bit_length() - 1]
        admissions = _numbers(possible & self.admissions)
        ends = [
            index
            for index in _numbers(possible & ~self.admissions)
            if not self.before[index] & ahead
        ]
        return admissions, ends if admissions else ends[:1]


def _begun(steps: Sequence[Transition]) -> list[int]:
    """Return by transition all that may have happened before it was in the log."""
    by_first = sorted(range(len(steps)), key=lambda index: steps[index].first)
    firsts = [steps[index].first for index in by_first]
    earlier = [0, *accumulate(1 << index for index in by_first)]
    return [earlier[bisect_left(firsts, step.last)] for step in steps]


def _numbers(steps: int) -> list[int]:
    numbers = []
    while steps:
        lowest = steps & -steps
        numbers.append(lowest.bit_length() - 1)
        steps ^= lowest
    return numbers


def _log_order(step: Transition) -> tuple[int, int, bool]:
    return step.last, step.pod, step.ends


def _transitions(number: int, pod: Pod) -> list[Transition]:
    if isinstance(pod, PendingAdmission):
        return [Transition(number, False, pod.sent_at, pod.runs_at or NOT_YET, pod.started_s)]
    ended = pod.ended or NOT_YET
    end = Transition(number, True, pod.sent_at, ended, pod.finished_s)
    if pod.request is None:
        return [end]
    return [Transition(number, False, pod.sent_at, pod.runs_at or ended, pod.started_s), end]


def _is_optional(pod: Pod) -> bool:
    return isinstance(pod, PendingAdmission) and not pod.is_admitted


def _must_come_first(admission: Transition, end: Transition) -> bool:
    return end.ends and (admission.pod == end.pod or _came_first(admission, end))


def _came_first(admission: Transition, other: Transition) -> bool:
    """By the node's clock. Positions win, because a clock may have been set back."""
    by_clock = other.ends and 0 < admission.clock_s < other.clock_s
    return by_clock and admission.first < other.last


def relevant(pending: Sequence[PendingAdmission], ended_pods: Sequence[EndedPod]) -> list[EndedPod]:
    """Return the ended pods that may matter: listed pods, and pods that may have been on the node
    together with a pending pod, or with another pod that matters. The
    others leave the node as if they had never come."""
    listed = [pod for pod in ended_pods if pod.request is None]
    others = [pod for pod in ended_pods if pod.request is not None]
    windows = [(pod.sent_at, pod.runs_at or NOT_YET) for pod in pending]
    matters: list[EndedPod] = []
    while True:
        met = [
            pod
            for pod in others
            if any(sent_at < pod.ended and pod.sent_at < came for sent_at, came in windows)
        ]
        if not met:
            return [*listed, *matters]
        matters, others = matters + met, [pod for pod in others if pod not in met]
        windows = [(pod.sent_at, pod.runs_at or pod.ended) for pod in met]


def disorder(pending: Sequence[PendingAdmission], ended_pods: Sequence[EndedPod]) -> int:
    """Return how many pairs of an admission and another pod's transition may have happened in
    either order. The more there are, the longer a search takes."""
    pods: tuple[Pod, ...] = (*pending, *ended_pods)
    steps = [step for number, pod in enumerate(pods) for step in _transitions(number, pod)]
    pairs = 0
    for admission in steps:
        if admission.ends:
            continue
        for transition in steps:
            overlap = admission.first < transition.last and transition.first < admission.last
            if (
                overlap
                and admission.pod != transition.pod
                and not _came_first(admission, transition)
            ):
                pairs += 1
    return pairs
