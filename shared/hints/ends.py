"""The states of a node after pods ended that its report may still count.

1. A pod that was sent since may have been admitted before or after each of these ends, and that
   decides which zones it got. Admissions and ends are followed in every order that is possible
   (`orders`).

2. A pod that the report lists gives back its listed amounts. A pod that came and went since the
   report gives back the amounts that it took in the order that is followed.

3. The search is bounded in steps as in `admission_orders`, which then judges the new pod.

Must not know the ledger, names, or a clock of the scheduler.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from typing import NamedTuple

from shared.hints.admission import NodeState
from shared.hints.admission_orders import (
    Budget,
    Kubelet,
    OverBudgetError,
    PendingAdmission,
    ReachableStates,
    SearchState,
)
from shared.hints.orders import EndedPod, Orders
from shared.hints.provider import TakenAmounts
from shared.hints.splits import TooManyChoicesError


class _OrderedState(NamedTuple):
    """A node state in which the transitions `ahead` have not happened yet. `taken` has, by number,
    what pods took that came since the report and will end."""

    states: NodeState
    ahead: int
    taken: tuple[tuple[int, tuple[TakenAmounts, ...]], ...] = ()


def reachable_states_after_ends(
    model: Kubelet,
    bases: Collection[NodeState],
    orders: Orders,
    budget: Budget,
) -> ReachableStates:
    """Return what the pending pods may make of the node once the others have ended. Raises
    OverBudgetError."""
    return EndsSearch(model, orders, budget).run(bases)


class EndsSearch:
    """The search over these orders. `pending` has one of each kind of pod that may not have come
    yet, `counts` how many there are, and `kinds` their numbers by the request's key.
    """

    def __init__(self, model: Kubelet, orders: Orders, budget: Budget) -> None:
        self._model, self._budget, self.orders, self.pods = model, budget, orders, orders.pods
        optional = [
            pod for pod in self.pods if isinstance(pod, PendingAdmission) and not pod.is_admitted
        ]
        by_key = {pod.request.key: pod for pod in optional}
        numbers = Counter([pod.request.key for pod in optional])
        self.kinds: dict[object, int] = {key: number for number, key in enumerate(by_key)}
        self.pending, self.counts = tuple(by_key.values()), tuple(numbers.values())
        self._may_be_rejected: set[int] = set()

    def run(self, bases: Collection[NodeState]) -> ReachableStates:
        """Raises OverBudgetError at once if the budget cannot be enough, as in most searches
        without an answer."""
        if bases and self._fewest_steps(self._budget.left) > self._budget.left:
            raise OverBudgetError
        reached = dict.fromkeys(_OrderedState(states, self.orders.everything) for states in bases)
        unexplored = list(reached)
        while unexplored:
            for next_state in self._next(unexplored.pop()):
                if next_state not in reached:
                    reached[next_state] = None
                    unexplored.append(next_state)
        current = [state for state in reached if not state.ahead & ~self.orders.optional]
        search_states = dict.fromkeys(self._count_pending(state) for state in current)
        return ReachableStates(self.pending, tuple(search_states), frozenset(self._may_be_rejected))

    def _fewest_steps(self, most: int) -> int:
        """Return the fewest steps of the search in any states: an admission is looked at for each
        set of transitions that is surely ahead at some point. Counts a little beyond `most`."""
        everything = self.orders.everything
        reached, unexplored, count = {everything}, [everything], 0
        while unexplored and count <= most:
            ahead = unexplored.pop()
            admissions, ends = self.orders.next(ahead)
            count += len(admissions)
            for step in (*admissions, *ends):
                still_ahead = ahead & ~self.surely_over(step)
                if still_ahead not in reached:
                    reached.add(still_ahead)
                    unexplored.append(still_ahead)
        return count

    def surely_over(self, step: int) -> int:
        """Return the transitions that are over at some point after this one.

        0 if no way may get that far: a pod that is known to have been admitted may be rejected in
        these states, and the amounts that it took are not known."""
        number = self.orders.steps[step].pod
        pod = self.pods[number]
        if isinstance(pod, PendingAdmission):
            return 0 if pod.is_admitted else 1 << step
        if pod.request is None:
            return 1 << step
        return 0 if pod.since else self.orders.of[number]

    def _next(self, state: _OrderedState) -> Iterator[_OrderedState]:
        """One pod is admitted, one ends, or a pod with init containers starts to run."""
        for states in self._model.later(state.states):
            yield _OrderedState(states, state.ahead, state.taken)
        admissions, ends = self.orders.next(state.ahead)
        for step in admissions:
            self._budget.spend()
            yield from self._after_admission(state, step)
        for step in ends:
            yield self._after_end(state, step)

    def _after_end(self, state: _OrderedState, step: int) -> _OrderedState:
        number, taken = self.orders.steps[step].pod, state.taken
        pod = self.pods[number]
        if isinstance(pod, EndedPod) and pod.request is None:
            states = self._model.released(state.states, pod.held)
        else:
            states = self._model.given_back(state.states, dict(taken)[number])
            taken = tuple([entry for entry in taken if entry[0] != number])
        return _OrderedState(states, state.ahead & ~(1 << step), taken)

    def _after_admission(self, state: _OrderedState, step: int) -> Iterator[_OrderedState]:
        """A pod that is known to have run was not rejected. A pod that was sent because another
        ended does not count as rejected if it comes before that end."""
        number, ahead = self.orders.steps[step].pod, state.ahead & ~(1 << step)
        pod = self.pods[number]
        assert pod.request is not None
        try:
            outcome = self._model.admit(state.states, pod.request)
            for states in outcome.states:
                taken = state.taken
                if isinstance(pod, EndedPod):
                    amounts = self._model.taken(state.states, states)
                    taken = tuple(sorted((*taken, (number, amounts))))
                yield _OrderedState(states, ahead, taken)
        except TooManyChoicesError as error:
            raise OverBudgetError from error
        if isinstance(pod, EndedPod):
            if not pod.since:  # it may have come and gone before the report
                yield _OrderedState(state.states, ahead & ~self.orders.of[number], state.taken)
        elif outcome.refused and not pod.is_admitted:
            if not ahead & ~self.orders.optional:
                self._may_be_rejected.add(self.kinds[pod.request.key])
            yield _OrderedState(state.states, ahead, state.taken)

    def _count_pending(self, state: _OrderedState) -> SearchState:
        counts = [0] * len(self.pending)
        for number, pod in enumerate(self.pods):
            if state.ahead & self.orders.of[number]:
                assert pod.request is not None
                counts[self.kinds[pod.request.key]] += 1
        return SearchState(state.states, tuple(counts))
