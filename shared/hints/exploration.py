"""The search of one node: the states that its kubelet may be in before a new pod arrives, and its
answers.

1. `before` follows all orders of the other pods (`admission_orders`, `ends`), within a budget.
2. If the budget ends, sampled states are asked: most answers are refusals, and one state is enough
   for one (`sample_states`).
3. `refuses_when_full` asks only in the state at the end of the first order. It costs as much as a
   few admissions, and shows most refusals.

Reached states are kept, because a node is asked about many pods. Must not know the ledger.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from shared.hints.admission import NodeState
from shared.hints.admission_orders import (
    UNKNOWN,
    Budget,
    Kubelet,
    OverBudgetError,
    PendingAdmission,
    ReachableStates,
    SearchResult,
    judge_newcomer,
    reachable_states,
)
from shared.hints.ends import reachable_states_after_ends
from shared.hints.orders import EndedPod, Orders
from shared.hints.request import HintRequest
from shared.hints.sample_states import full_state, sample_states
from shared.hints.splits import TooManyChoicesError

# Budgets below this sample no states. A refusal by a sampled state counts as so many steps.
SAMPLED_FROM = 64


class KeptResult(NamedTuple):
    """A search's answer, and the steps it took: the same for any caller with this budget."""

    result: SearchResult
    taken: int


class Exploration:
    """The search of one node under one model. `bases` are the states before all other pods; a step
    of a budget pays for `admissions_a_step` admissions.
    """

    def __init__(
        self,
        model: Kubelet,
        bases: tuple[NodeState, ...],
        pending: tuple[PendingAdmission, ...],
        ended_pods: tuple[EndedPod, ...],
        admissions_a_step: int = 1,
    ) -> None:
        self._model, self._bases = model, bases
        self._admissions_a_step = admissions_a_step
        self._pending, self._ended_pods = pending, ended_pods
        self._before: tuple[ReachableStates, ...] | None = None
        # The admissions that were tried to reach the states before the newcomer, and those needed.
        self._tried, self._needed = -1, 0
        # Sampled states so far, and those to come.
        self._samples: list[tuple[NodeState, int]] = []
        self._more_samples: Iterator[tuple[NodeState, int]] | None = None
        self._full: tuple[NodeState | None] | None = None

    @cached_property
    def _orders(self) -> Orders:
        return Orders((*self._pending, *self._ended_pods))

    def search(self, request: HintRequest, steps: int) -> KeptResult:
        """Return the answer for a new pod within so many steps."""
        admissions = steps * self._admissions_a_step
        earlier, budget = self.before(steps), Budget(admissions)
        if earlier is not None:
            result = self._judge(earlier, request, budget)
            if result != UNKNOWN:
                taken = self._needed + admissions - budget.left
                return KeptResult(result, -(-taken // self._admissions_a_step))
        if steps >= SAMPLED_FROM:
            taken = self._steps_until_refused(request, steps)
            if taken:
                return KeptResult("refused", max(taken, SAMPLED_FROM))
        return KeptResult(UNKNOWN, steps)

    def _judge(
        self, earlier: Sequence[ReachableStates], request: HintRequest, budget: Budget
    ) -> SearchResult:
        return judge_newcomer(self._model, earlier, request, budget)

    def before(self, steps: int) -> Sequence[ReachableStates] | None:
        """Return all states before the newcomer, by base state if they must be kept apart.

        None if `steps` do not reach that far, even if a caller with more of them came first: a
        result that depends on earlier callers could not be repeated.
        """
        admissions = steps * self._admissions_a_step
        if self._before is None and admissions > self._tried:
            self._tried, budget = admissions, Budget(admissions)
            try:
                self._before = self._all_reachable(budget)
                self._needed = admissions - budget.left
            except OverBudgetError:
                self._before = None
        return self._before if admissions >= self._needed else None

    def refuses_when_full(self, request: HintRequest) -> bool:
        """Return whether the kubelet rejects the pod after all that came in the first order."""
        if self._full is None:
            base, *_ = self._bases
            self._full = (full_state(self._model, base, self._orders),)
        (full,) = self._full
        try:
            return full is not None and self._model.refuses(full, request)
        except TooManyChoicesError:
            return False

    def _all_reachable(self, budget: Budget) -> tuple[ReachableStates, ...]:
        """Search from all base states together, because their paths meet; from each alone if a pod
        may be rejected from one of them.
        """
        together = self._reachable(self._bases, budget)
        if len(self._bases) == 1 or not together.may_be_rejected:
            return (together,)
        return tuple([self._reachable((base,), budget) for base in self._bases])

    def _reachable(self, bases: tuple[NodeState, ...], budget: Budget) -> ReachableStates:
        if self._ended_pods:
            return reachable_states_after_ends(self._model, bases, self._orders, budget)
        return reachable_states(self._model, bases, self._pending, budget)

    def _steps_until_refused(self, request: HintRequest, steps: int) -> int:
        """Return the steps to a sampled state that rejects the pod, 0 if they exceed `steps`."""
        for asked, (state, taken) in enumerate(self._sampled(), 1):
            if asked + taken > steps:
                break
            try:
                if self._model.refuses(state, request):
                    return asked + taken
            except TooManyChoicesError:
                continue
        return 0

    def _sampled(self) -> Iterator[tuple[NodeState, int]]:
        yield from self._samples
        if self._more_samples is None:
            self._more_samples = sample_states(self._model, self._bases, self._orders)
        for sample in self._more_samples:
            self._samples.append(sample)
            yield sample
