"""In what order may pods have come and gone? What the positions of the log and the node's own clock
leave open.

An end, or an admission, happened after the pod was sent and before it was heard of, in positions of
the log: so a pod that was heard to run came before one that was sent later. The node's own clock
tells more. Its kubelet notes when a pod was started, just after its admission, and when its last
container had finished, just before what the pod held is free: where that was in a later second than
the start of another, the other was admitted first. All else may have happened in any order. Must
not know what a pod takes, names, or a clock of ours.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from shared.domain.report import ZonedAmount
from shared.hints.admission_orders import PendingAdmission
from shared.hints.request import HintRequest

NOT_YET = 1 << 62
"""After every position of a log."""


class EndedPod(NamedTuple):
    """A pod that ended. `held` is what the report lists for it; one that the report lacks has its
    `request`, and came after the report was made, or (unless `since`) had gone by then. Positions:
    sent after `sent_at`, heard to run at `runs_at`, to have ended at `ended`; 0 for unknown. By the
    node's clock it was admitted before the second `started_s` was over, and held what it had until
    `finished_s` had begun; 0 for unknown."""

    held: tuple[ZonedAmount, ...] = ()
    request: HintRequest | None = None
    sent_at: int = 0
    runs_at: int = 0
    ended: int = 0
    since: bool = False
    started_s: int = 0
    finished_s: int = 0


class Transition(NamedTuple):
    """The admission or the end of the pod of this number: not before `first`, and heard of at
    `last`. `clock_s` is of the node's clock: an admission was before that second was over, an end
    not before it had begun; 0 for unknown."""

    pod: int
    ends: bool
    first: int
    last: int
    clock_s: int


class Orders:
    """What may happen next. Sets of steps are bits, the step that was heard of first is the lowest:
    `everything`, those that need not happen (`optional`), and those of each pod."""

    def __init__(self, pods: Sequence[PendingAdmission | EndedPod]) -> None:
        self.steps = tuple(
            sorted(
                [step for number, pod in enumerate(pods) for step in _transitions(number, pod)],
                key=_heard,
            )
        )
        self.everything = (1 << len(self.steps)) - 1
        self.of = [0] * len(pods)
        for at, step in enumerate(self.steps):
            self.of[step.pod] |= 1 << at
        self.optional = sum(
            own for own, pod in zip(self.of, pods, strict=True) if _is_optional(pod)
        )
        admissions = [(1 << at, step) for at, step in enumerate(self.steps) if not step.ends]
        self._admissions = sum(bit for bit, _ in admissions)
        self._before = [
            sum(bit for bit, each in admissions if _must_come_first(each, step))
            for step in self.steps
        ]
        self._begun = _begun(self.steps)
        self._known: dict[int, tuple[list[int], list[int]]] = {}

    def next(self, ahead: int) -> tuple[list[int], list[int]]:
        """The admissions and the ends that may be next of those ahead. Where nobody can come before
        the next end that was heard of, that end is next: of several ends between two admissions it
        does not matter which comes first."""
        found = self._known.get(ahead)
        if found is None:
            found = self._known[ahead] = self._next(ahead)
        return found

    def _next(self, ahead: int) -> tuple[list[int], list[int]]:
        if not ahead:
            return [], []
        possible = ahead & self._begun[(ahead & -ahead).bit_length() - 1]
        pending, ends = (
            _numbers(possible & self._admissions),
            _numbers(possible & ~self._admissions),
        )
        ends = [at for at in ends if not self._before[at] & ahead]
        return pending, ends if pending else ends[:1]


def _begun(steps: Sequence[Transition]) -> list[int]:
    """By step those that may happen before it was heard of."""
    by_first = sorted(range(len(steps)), key=lambda at: steps[at].first)
    firsts, before = (
        [steps[at].first for at in by_first],
        [0, *accumulate(1 << at for at in by_first)],
    )
    return [before[bisect_left(firsts, step.last)] for step in steps]


def _numbers(steps: int) -> list[int]:
    found = []
    while steps:
        lowest = steps & -steps
        found.append(lowest.bit_length() - 1)
        steps ^= lowest
    return found


def _heard(step: Transition) -> tuple[int, int, bool]:
    return step.last, step.pod, step.ends


def _transitions(number: int, pod: PendingAdmission | EndedPod) -> list[Transition]:
    if isinstance(pod, PendingAdmission):
        return [Transition(number, False, pod.sent_at, pod.runs_at or NOT_YET, pod.started_s)]
    ended = pod.ended or NOT_YET
    end = Transition(number, True, pod.sent_at, ended, pod.finished_s)
    if pod.request is None:
        return [end]
    return [Transition(number, False, pod.sent_at, pod.runs_at or ended, pod.started_s), end]


def _is_optional(pod: PendingAdmission | EndedPod) -> bool:
    return isinstance(pod, PendingAdmission) and not pod.is_admitted


def _must_come_first(admission: Transition, end: Transition) -> bool:
    """Before it ends a pod comes, and so does who came first by the node's clock."""
    return end.ends and (admission.pod == end.pod or _came_first(admission, end))


def _came_first(admission: Transition, other: Transition) -> bool:
    """By the node's clock. Positions win: a clock may have been set back."""
    return other.ends and 0 < admission.clock_s < other.clock_s and admission.first < other.last


def relevant(pending: Sequence[PendingAdmission], ended_pods: Sequence[EndedPod]) -> list[EndedPod]:
    """Those that the report lists, and of those that came and went who may have stood in somebody's
    way: in that of a pod that is still there or comes, or of another who may have. The others leave
    the node as if they had never come."""
    listed, others = (
        [each for each in ended_pods if each.request is None],
        [each for each in ended_pods if each.request is not None],
    )
    windows = [(each.sent_at, each.runs_at or NOT_YET) for each in pending]
    kept: list[EndedPod] = []
    while True:
        met = [
            each
            for each in others
            if any(sent_at < each.ended and each.sent_at < came for sent_at, came in windows)
        ]
        if not met:
            return [*listed, *kept]
        kept, others = kept + met, [each for each in others if each not in met]
        windows = [(each.sent_at, each.runs_at or each.ended) for each in met]


def disorder(pending: Sequence[PendingAdmission], ended_pods: Sequence[EndedPod]) -> int:
    """How many pairs of an admission and another pod's admission or end may have happened in either
    order: a search over them takes the longer, the more there are."""
    pods: tuple[PendingAdmission | EndedPod, ...] = (*pending, *ended_pods)
    steps = [step for number, pod in enumerate(pods) for step in _transitions(number, pod)]
    admissions = [step for step in steps if not step.ends]
    return sum(
        [
            one.pod != other.pod
            and one.first < other.last
            and other.first < one.last
            and not _came_first(one, other)
            for one in admissions
            for other in steps
        ]
    )
