"""What a node may look like where pods ended that its report may still count: whoever came since
came before or after each end.

Admissions and ends are followed in every order that is possible (`orders`). A pod that came and
went since the report takes and gives back what it is followed to take. Bounded in steps as
`arrivals` is, which judges the newcomer. Must not know the ledger, names, or a clock of ours.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from shared.hints.admission import KubeletModel, NodeState
from shared.hints.admission_orders import (
    Budget,
    OverBudgetError,
    PendingAdmission,
    ReachableStates,
    SearchState,
)
from shared.hints.orders import EndedPod, Orders
from shared.hints.provider import TakenAmounts
from shared.hints.splits import TooManyChoicesError


class _OrderedState(NamedTuple):
    """The steps `ahead` have yet to happen; `taken` is what those took who came since the report
    and will end, by number.
    """

    states: NodeState
    ahead: int
    taken: tuple[tuple[int, tuple[TakenAmounts, ...]], ...] = ()


def reachable_states_after_ends(
    model: KubeletModel,
    bases: Collection[NodeState],
    pending: Sequence[PendingAdmission],
    ended_pods: Sequence[EndedPod],
    budget: Budget,
) -> ReachableStates:
    """Whatever those on their way may make of the node once all of these have ended. Raises
    OverBudgetError.
    """
    return _Search(model, (*pending, *ended_pods), budget).run(bases)


class _Search:
    def __init__(
        self, model: KubeletModel, pods: Sequence[PendingAdmission | EndedPod], budget: Budget
    ) -> None:
        self._model, self._pods, self._budget, self._orders = model, pods, budget, Orders(pods)
        optional = {
            pod.request.key: pod
            for pod in pods
            if isinstance(pod, PendingAdmission) and not pod.is_admitted
        }
        self._kinds = {key: number for number, key in enumerate(optional)}
        self._coming = tuple(optional.values())
        self._may_be_rejected: set[int] = set()

    def run(self, bases: Collection[NodeState]) -> ReachableStates:
        """Raises OverBudgetError at once where the budget surely is too small: most searches that
        have no answer.
        """
        if bases and self._fewest_steps(self._budget.left) > self._budget.left:
            raise OverBudgetError
        found = dict.fromkeys(_OrderedState(states, self._orders.everything) for states in bases)
        unexplored = list(found)
        while unexplored:
            for after in self._next(unexplored.pop()):
                if after not in found:
                    found[after] = None
                    unexplored.append(after)
        now = dict.fromkeys(
            self._as_now(moment) for moment in found if not moment.ahead & ~self._orders.optional
        )
        return ReachableStates(self._coming, tuple(now), frozenset(self._may_be_rejected))

    def _fewest_steps(self, most: int) -> int:
        """What the search takes at least, whatever the states: an admission is looked at for each
        set of steps that are surely ahead at some moment. Counted as far as `most` and a little
        beyond."""
        found, unexplored, count = {self._orders.everything}, [self._orders.everything], 0
        while unexplored and count <= most:
            ahead = unexplored.pop()
            pending, ends = self._orders.next(ahead)
            count += len(pending)
            for step in (*pending, *ends):
                after = ahead & ~self._surely_over(step)
                if after not in found:
                    found.add(after)
                    unexplored.append(after)
        return count

    def _surely_over(self, step: int) -> int:
        """The steps that are not ahead any more at some moment after this one; 0 where nobody may
        get that far: who is known to be there or to have come may be refused in these states, and
        what it took is not known."""
        number = self._orders.steps[step].pod
        pod = self._pods[number]
        if isinstance(pod, PendingAdmission):
            return 0 if pod.is_admitted else 1 << step
        if pod.request is None:
            return 1 << step
        return 0 if pod.since else self._orders.of[number]

    def _next(self, moment: _OrderedState) -> Iterator[_OrderedState]:
        """One pod comes, one ends, or an init container's pod starts to run."""
        for states in self._model.later(moment.states):
            yield _OrderedState(states, moment.ahead, moment.taken)
        pending, ends = self._orders.next(moment.ahead)
        for step in pending:
            self._budget.spend()
            yield from self._came(moment, step)
        for step in ends:
            yield self._ended(moment, step)

    def _ended(self, moment: _OrderedState, step: int) -> _OrderedState:
        number, taken = self._orders.steps[step].pod, moment.taken
        pod = self._pods[number]
        if isinstance(pod, EndedPod) and pod.request is None:
            states = self._model.released(moment.states, pod.held)
        else:
            states = self._model.given_back(moment.states, dict(taken)[number])
            taken = tuple([each for each in taken if each[0] != number])
        return _OrderedState(states, moment.ahead & ~(1 << step), taken)

    def _came(self, moment: _OrderedState, step: int) -> Iterator[_OrderedState]:
        """Who is known to have been there was not refused. Who was sent here because of an end is
        not doomed for coming before it."""
        number, ahead = self._orders.steps[step].pod, moment.ahead & ~(1 << step)
        pod = self._pods[number]
        assert pod.request is not None
        try:
            admitted = self._model.admit(moment.states, pod.request)
            for states in admitted.states:
                more = (
                    ((number, self._model.taken(moment.states, states)),)
                    if isinstance(pod, EndedPod)
                    else ()
                )
                yield _OrderedState(
                    states, ahead, tuple(sorted((*moment.taken, *more))) if more else moment.taken
                )
        except TooManyChoicesError as error:
            raise OverBudgetError from error
        if isinstance(pod, EndedPod):
            if not pod.since:
                yield _OrderedState(moment.states, ahead & ~self._orders.of[number], moment.taken)
        elif admitted.refused and not pod.is_admitted:
            if not ahead & ~self._orders.optional:
                self._may_be_rejected.add(self._kinds[pod.request.key])
            yield _OrderedState(moment.states, ahead, moment.taken)

    def _as_now(self, moment: _OrderedState) -> SearchState:
        """The pods that may still come, counted by kind."""
        counts = [0] * len(self._coming)
        for number, pod in enumerate(self._pods):
            if moment.ahead & self._orders.of[number]:
                assert pod.request is not None
                counts[self._kinds[pod.request.key]] += 1
        return SearchState(moment.states, tuple(counts))
