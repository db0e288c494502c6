"""What a node may look like where pods ended that its report may still count: whoever came since came before or after each end.

An end, or an admission, happened after the pod was sent and before it was heard of, in positions of the log: so a pod that was
heard to run came before one that was sent later. The node's own clock tells more. Its kubelet notes when a pod was started, just
after its admission, and when its last container had finished, just before what the pod held is free: where that was in a later
second than the start of another, the other was admitted first. All else may have happened in any order. A pod that came and went
since the report takes and gives back what it is followed to take. Bounded in steps as `arrivals` is, which judges the newcomer.
Must not know the ledger, names, or a clock of ours.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from shared.domain.report import ZonedAmount
from shared.hints.admission import Rules, States
from shared.hints.arrivals import Budget, Coming, Moment, OverBudgetError, Reachable
from shared.hints.provider import Taken
from shared.hints.request import Request
from shared.hints.splits import TooManyChoicesError

UNHEARD = 1 << 62
"""After every position of a log."""


class Gone(NamedTuple):
    """A pod that ended. `held` is what the report lists for it; one that the report lacks has its `request`, and came after the
    report was made, or (unless `since`) had gone by then. Positions: sent after `sent`, heard to run at `runs`, to have ended at
    `ended`; 0 for unknown. By the node's clock it was admitted before the second `started_s` was over, and held what it had until
    `finished_s` had begun; 0 for unknown."""

    held: tuple[ZonedAmount, ...] = ()
    request: Request | None = None
    sent: int = 0
    runs: int = 0
    ended: int = 0
    since: bool = False
    started_s: int = 0
    finished_s: int = 0


def relevant(coming: Sequence[Coming], gone: Sequence[Gone]) -> list[Gone]:
    """Those that the report lists, and of those that came and went who may have stood in somebody's way: in that of a pod that is
    still there or comes, or of another who may have. The others leave the node as if they had never come."""
    listed, others = [each for each in gone if each.request is None], [each for each in gone if each.request is not None]
    windows = [(each.sent, each.runs or UNHEARD) for each in coming]
    kept: list[Gone] = []
    while True:
        met = [each for each in others if any(sent < each.ended and each.sent < came for sent, came in windows)]
        if not met:
            return [*listed, *kept]
        kept, others = kept + met, [each for each in others if each not in met]
        windows = [(each.sent, each.runs or each.ended) for each in met]


def disorder(coming: Sequence[Coming], gone: Sequence[Gone]) -> int:
    """How many pairs of an admission and another pod's admission or end may have happened in either order: a search over them
    takes the longer, the more there are."""
    pods: tuple[Coming | Gone, ...] = (*coming, *gone)
    steps = [step for number, pod in enumerate(pods) for step in _steps(number, pod)]
    admissions = [step for step in steps if not step.ends]
    return sum(
        [
            one.pod != other.pod and one.first < other.last and other.first < one.last and not _came_first(one, other)
            for one in admissions
            for other in steps
        ]
    )


class Step(NamedTuple):
    """The admission or the end of the pod of this number: not before `first`, and heard of at `last`. `clock_s` is of the node's
    clock: an admission was before that second was over, an end not before it had begun; 0 for unknown."""

    pod: int
    ends: bool
    first: int
    last: int
    clock_s: int


def _came_first(admission: Step, other: Step) -> bool:
    """By the node's clock. Positions win: a clock may have been set back."""
    return other.ends and 0 < admission.clock_s < other.clock_s and admission.first < other.last


class _Moment(NamedTuple):
    """`ahead` has yet to happen; `taken` is what those took who came since the report and will end, by number."""

    states: States
    ahead: frozenset[Step]
    taken: tuple[tuple[int, tuple[Taken, ...]], ...] = ()


def reachable_after_ends(
    rules: Rules, bases: Collection[States], coming: Sequence[Coming], gone: Sequence[Gone], budget: Budget
) -> Reachable:
    """Whatever those on their way may make of the node once all of these have ended. Raises OverBudgetError."""
    return _Search(rules, (*coming, *gone), budget).run(bases)


class _Search:
    def __init__(self, rules: Rules, pods: Sequence[Coming | Gone], budget: Budget) -> None:
        self._rules, self._pods, self._budget = rules, pods, budget
        optional = {pod.request.key: pod for pod in pods if isinstance(pod, Coming) and not pod.there}
        self._kinds = {key: number for number, key in enumerate(optional)}
        self._coming = tuple(optional.values())
        self._doomed: set[int] = set()

    def run(self, bases: Collection[States]) -> Reachable:
        steps = frozenset(step for number, pod in enumerate(self._pods) for step in _steps(number, pod))
        found = dict.fromkeys(_Moment(states, steps) for states in bases)
        pending = list(found)
        while pending:
            for after in self._next(pending.pop()):
                if after not in found:
                    found[after] = None
                    pending.append(after)
        now = dict.fromkeys(self._as_now(moment) for moment in found if all(self._is_optional(step) for step in moment.ahead))
        return Reachable(self._coming, tuple(now), frozenset(self._doomed))

    def _next(self, moment: _Moment) -> Iterator[_Moment]:
        """One pod comes, or one ends. Where nobody can come before the next end that was heard of, that end is next: of several
        ends between two admissions it does not matter which comes first."""
        for states in self._rules.later(moment.states):
            yield moment._replace(states=states)
        soonest = min((step.last for step in moment.ahead), default=UNHEARD)
        possible = [step for step in moment.ahead if step.first < soonest]
        coming = [step for step in possible if not step.ends]
        for step in coming:
            self._budget.spend()
            yield from self._came(moment, step)
        inside = {step.pod for step in moment.ahead if not step.ends}
        ends = [step for step in possible if step.ends and step.pod not in inside and self._is_next(step, moment)]
        for step in ends if coming else sorted(ends, key=_heard)[:1]:
            yield from self._ended(moment, step)

    def _is_next(self, end: Step, moment: _Moment) -> bool:
        return end.clock_s == 0 or not any(_came_first(step, end) for step in moment.ahead if not step.ends)

    def _ended(self, moment: _Moment, step: Step) -> Iterator[_Moment]:
        pod, taken = self._pods[step.pod], dict(moment.taken)
        if isinstance(pod, Gone) and pod.request is None:
            states = self._rules.released(moment.states, pod.held)
        else:
            states = self._rules.given_back(moment.states, taken.pop(step.pod))
        yield _Moment(states, moment.ahead - {step}, tuple(taken.items()))

    def _came(self, moment: _Moment, step: Step) -> Iterator[_Moment]:
        """Who is known to have been there was not refused. Who was sent here because of an end is not doomed for coming before
        it."""
        pod, ahead = self._pods[step.pod], moment.ahead - {step}
        assert pod.request is not None
        try:
            admitted = self._rules.admit(moment.states, pod.request)
            for states in admitted.states:
                more = ((step.pod, self._rules.taken(moment.states, states)),) if isinstance(pod, Gone) else ()
                yield _Moment(states, ahead, tuple(sorted((*moment.taken, *more))))
        except TooManyChoicesError as error:
            raise OverBudgetError from error
        if isinstance(pod, Gone):
            if not pod.since:
                yield moment._replace(ahead=frozenset(each for each in ahead if each.pod != step.pod))
        elif admitted.refused and not pod.there:
            if all(self._is_optional(each) for each in ahead):
                self._doomed.add(self._kinds[pod.request.key])
            yield moment._replace(ahead=ahead)

    def _is_optional(self, step: Step) -> bool:
        pod = self._pods[step.pod]
        return isinstance(pod, Coming) and not pod.there

    def _as_now(self, moment: _Moment) -> Moment:
        counts = [0] * len(self._coming)
        for step in moment.ahead:
            request = self._pods[step.pod].request
            assert request is not None
            counts[self._kinds[request.key]] += 1
        return Moment(moment.states, tuple(counts))


def _heard(step: Step) -> tuple[int, int]:
    return step.last, step.pod


def _steps(number: int, pod: Coming | Gone) -> Iterator[Step]:
    if isinstance(pod, Coming):
        yield Step(number, False, pod.sent, pod.runs or UNHEARD, pod.started_s)
        return
    ended = pod.ended or UNHEARD
    if pod.request is not None:
        yield Step(number, False, pod.sent, pod.runs or ended, pod.started_s)
    yield Step(number, True, pod.sent, ended, pod.finished_s)
