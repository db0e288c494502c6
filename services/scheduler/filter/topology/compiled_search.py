"""The search on a plain form by the compiled kernel: the same states, answers and steps as those of
`Exploration`, which is the reference.

Must not know nodes.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

from services.scheduler.snapshot import kernel
from shared.hints.admission import NodeState
from shared.hints.admission_orders import (
    UNKNOWN,
    Budget,
    OverBudgetError,
    PendingAdmission,
    SearchResult,
    fewest_steps,
    kinds_of,
)
from shared.hints.ends import EndsSearch
from shared.hints.exploration import Exploration, KeptResult
from shared.hints.orders import EndedPod
from shared.hints.plain_model import PlainModel
from shared.hints.request import HintRequest

# The most numbers of reached states that are kept: they are cheap to reach again.
MOST_KEPT = 1 << 13
# As in `compiled/kernel.h` and `compiled/search_ends.c`.
MOST_KINDS, MOST_STEPS = 32, 62
# The kernel's answers, by number.
RESULTS: tuple[SearchResult, ...] = ("admitted", "refused", "endangers", UNKNOWN)


def is_compiled(pending: Sequence[PendingAdmission], ended_pods: Sequence[EndedPod]) -> bool:
    """Return whether the kernel searches next to these pods."""
    if kernel.COMPILED is None or not ended_pods:
        return kernel.COMPILED is not None
    steps = len(pending) + sum(1 if pod.request is None else 2 for pod in ended_pods)
    return steps <= MOST_STEPS and len(pending) <= MOST_KINDS


class CompiledExploration(Exploration):
    """The search of one node."""

    _model: PlainModel

    def search(self, request: HintRequest, steps: int) -> KeptResult:
        """Return the answer for a new pod within so many steps."""
        kept = super().search(request, steps)
        earlier: Sequence[Any] = self._before or ()
        zones, names = self._model.shape
        if sum(reached.count for reached in earlier) * zones * names > MOST_KEPT:
            self._before, self._tried = None, -1
        return kept

    def _reachable(self, bases: tuple[NodeState, ...], budget: Budget) -> Any:
        kinds, counts, search = *kinds_of(self._pending), None
        if self._ended_pods:
            search = EndsSearch(self._model, self._orders, budget)
            kinds, counts = search.pending, search.counts
        elif bases and fewest_steps(counts) > budget.left:
            raise OverBudgetError
        numbers, needs, pending = array("q"), array("q"), array("q")
        for base in bases:
            numbers.extend(self._model.numbers(base))
        for pod, count in zip(kinds, counts, strict=True):
            needs.extend(self._model.needed_numbers(pod.request))
            pending.extend((count, pod.is_admitted))
        ends = [self._ends(search, needs)] if search is not None else []
        shape = self._model.shape
        reached = kernel.COMPILED.Reached(numbers, needs, pending, *shape, budget.left, *ends)
        budget.left = reached.left
        if budget.left < 0:
            raise OverBudgetError
        return reached

    def _ends(self, search: EndsSearch, needs: array[int]) -> tuple[object, ...]:
        """Return what the kernel needs to know of all pods and their orders; add the needs of each
        to `needs`.
        """
        model, orders, takers = self._model, search.orders, 0
        pods, released, steps = array("q"), array("q"), array("q")
        for number, pod in enumerate(search.pods):
            needs.extend([0] if pod.request is None else model.needed_numbers(pod.request))
            if isinstance(pod, EndedPod):
                row = 0, pod.request is None, pod.since, True, 0 if pod.request is None else takers
                released.extend(model.held_numbers(pod.held))
                takers += pod.request is not None
            else:
                row = search.kinds.get(pod.request.key, 0), False, pod.is_admitted, False, 0
                released.extend(model.held_numbers(()))
            pods.extend((orders.of[number], *row))
        for step, transition in enumerate(orders.steps):
            begun, must_precede = orders.begun[step], orders.before[step]
            over = search.surely_over(step)
            steps.extend((transition.pod, transition.ends, begun, must_precede, over))
        sizes = array("q", model.size_numbers)
        return steps, pods, released, sizes, takers, orders.admissions, orders.optional

    def _judge(self, earlier: Sequence[Any], request: HintRequest, budget: Budget) -> SearchResult:
        needs, result = array("q", self._model.needed_numbers(request)), UNKNOWN
        for reached in earlier:
            if reached.count:
                answer, budget.left = reached.judge(needs, budget.left)
                result = RESULTS[answer]
                if result != "admitted":
                    break
        return result
