"""A few of the states that a node may be in, by a few of the orders of admissions and ends.

1. A search over all orders may take thousands of admissions, and most of its answers are refusals.
   One order takes as many admissions as there are pods. If the kubelet rejects the new pod in one
   state that may be reached, the search would refuse it, too.

2. So the states of a few orders are asked first. Four take the first or the last transition that
   may be next, and admissions before ends or after them. The others draw the next transition from
   a fixed sequence, so that every search samples the same. Pods that may not have come yet come
   last or are drawn like the others, and the states before and after each of them count.

3. That no sampled state rejects the pod says nothing.

4. Every admission counts as a step, as in the search, so that a small budget samples little.

Must not know the ledger, names, or a clock of the scheduler.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from shared.hints.admission import NodeState
from shared.hints.admission_orders import Kubelet
from shared.hints.orders import EndedPod, Orders
from shared.hints.provider import TakenAmounts
from shared.hints.splits import TooManyChoicesError

# States before all pods from which the orders are followed.
MOST_BASES = 4
# Drawn orders of each base.
DRAWN = 28


class _Order(NamedTuple):
    """Which of the next transitions an order takes; the first or the last of several states. A
    `seed` draws; with an odd one, pods that may not have come yet are drawn with the others."""

    admissions_first: bool = False
    last: bool = False
    seed: int = 0


ORDERS = (
    *(_Order(first, last) for last in (False, True) for first in (True, False)),
    *(_Order(seed=seed) for seed in range(1, DRAWN + 1)),
)


def sample_states(
    model: Kubelet,
    bases: Collection[NodeState],
    orders: Orders,
) -> Iterator[tuple[NodeState, int]]:
    """Yield states that the node may be in once every end is over, each of them once, with the
    steps that were taken so far."""
    sampled, steps = set[NodeState](), 0
    for base in islice(bases, MOST_BASES):
        for order in ORDERS:
            walk = _Walk(model, orders, order)
            for state in walk.states(base):
                if state not in sampled:
                    sampled.add(state)
                    yield state, steps + walk.steps
            steps += walk.steps


def full_state(
    model: Kubelet,
    base: NodeState,
    orders: Orders,
) -> NodeState | None:
    """Return the state at the end of the first order, in which all pods came that found room; None
    if that order is impossible."""
    last: NodeState | None = None
    for state in _Walk(model, orders, ORDERS[0]).states(base):
        last = state
    return last


class _Walk:
    """One order, from one base."""

    def __init__(self, model: Kubelet, orders: Orders, order: _Order) -> None:
        self._model, self._pods, self._orders, self._order = model, orders.pods, orders, order
        self._taken: dict[int, tuple[TakenAmounts, ...]] = {}
        self._drawn, self.steps = order.seed, 0

    def states(self, base: NodeState) -> Iterator[NodeState]:
        """Yield the states after all that surely happened. Nothing more if a pod that is known to
        have run would be rejected, or if admissions have too many outcomes."""
        state, ahead = base, self._orders.everything
        try:
            while True:
                if not ahead & ~self._orders.optional:
                    yield self._later(state)
                step = self._next(ahead)
                if step is None:
                    return
                moment = self._after(state, ahead, step)
                if moment is None:
                    return
                state, ahead = moment
        except TooManyChoicesError:
            return

    def _next(self, ahead: int) -> int | None:
        admissions, ends = self._orders.next(ahead)
        optional = [step for step in admissions if self._orders.optional >> step & 1]
        surely = [step for step in admissions if not self._orders.optional >> step & 1]
        if self._order.seed:
            drawable = [*admissions, *ends] if self._order.seed % 2 else [*surely, *ends]
            return self._draw(drawable or optional)
        groups = (surely, ends) if self._order.admissions_first else (ends, surely)
        for steps in (*groups, optional):
            if steps:
                return steps[-1 if self._order.last else 0]
        return None

    def _draw(self, steps: Sequence[int]) -> int | None:
        """A linear congruential generator, the one of the C standard's example."""
        if not steps:
            return None
        self._drawn = (self._drawn * 1103515245 + 12345) & 0x7FFFFFFF
        return steps[(self._drawn >> 16) % len(steps)]

    def _after(self, state: NodeState, ahead: int, step: int) -> tuple[NodeState, int] | None:
        transition = self._orders.steps[step]
        number, pod, ahead = transition.pod, self._pods[transition.pod], ahead & ~(1 << step)
        if transition.ends:
            return self._after_end(state, number), ahead
        assert pod.request is not None
        self.steps += 1
        outcome = self._model.admit(state, pod.request)
        if outcome.states:
            admitted = outcome.states[-1 if self._order.last else 0]
            if isinstance(pod, EndedPod):
                self._taken[number] = self._model.taken(state, admitted)
            return admitted, ahead
        if isinstance(pod, EndedPod):  # it may have come and gone before the report
            return None if pod.since else (state, ahead & ~self._orders.of[number])
        return None if pod.is_admitted else (state, ahead)

    def _after_end(self, state: NodeState, number: int) -> NodeState:
        pod = self._pods[number]
        if isinstance(pod, EndedPod) and pod.request is None:
            return self._model.released(state, pod.held)
        return self._model.given_back(state, self._taken[number])

    def _later(self, state: NodeState) -> NodeState:
        """Return the state once all pods run that were admitted."""
        while later := self._model.later(state):
            state = later[0]
        return state
