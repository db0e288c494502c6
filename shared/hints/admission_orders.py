"""Decide if a pod may go to a node to which other pods are on their way.

1. Kubelets admit pods in the order in which they receive them, and that order is not known. A
   pending admission is a pod that was sent to the node and is not confirmed by its report.

2. A new pod passes only if the kubelet admits it whichever of the pending pods come before it,
   and if none of them can be rejected because of it.

3. `reachable_states` follows every order of the pending admissions, from every state that the
   report allows. `judge_newcomer` then asks in each of these states. Pods that ask for the same
   count as one kind, by number.

4. The search is bounded in steps, never in time, so that a decision can be reproduced. If the
   budget ends, the answer is "unknown": the pod waits for the next report.

If pods ended that the report may still count, `ends` replaces `reachable_states`. Must not know the
ledger, names, or a clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from math import prod
from typing import Literal, NamedTuple, Protocol

from shared.domain.report import ZonedAmount
from shared.hints.admission import AdmissionOutcome, NodeState
from shared.hints.provider import TakenAmounts
from shared.hints.request import HintRequest
from shared.hints.splits import TooManyChoicesError

# refused: in some state the kubelet rejects the new pod. endangers: a pending pod could be rejected
# because of it. unknown: the budget ended.
SearchResult = Literal["admitted", "refused", "endangers", "unknown"]
UNKNOWN: SearchResult = "unknown"


class OverBudgetError(Exception):
    """The search needs more steps than it may take."""


class Budget:
    """Steps left: admissions that may still be looked at."""

    __slots__ = ("left",)

    def __init__(self, steps: int) -> None:
        self.left = steps

    def spend(self) -> None:
        """Take one step. Raises OverBudgetError if none is left."""
        if self.left <= 0:
            raise OverBudgetError
        self.left -= 1


class Kubelet(Protocol):
    """What a search asks about a kubelet: `KubeletModel` or `PlainModel`."""

    def admit(self, states: NodeState, request: HintRequest) -> AdmissionOutcome:
        """Return the outcome of the pod's admission. Raises TooManyChoicesError."""

    def refuses(self, states: NodeState, request: HintRequest) -> bool:
        """Return True if some choice of the kubelet rejects the pod. Raises TooManyChoicesError."""

    def later(self, states: NodeState) -> tuple[NodeState, ...]:
        """Return what the node may become without an admission or an end, one step each."""

    def released(self, states: NodeState, held: Sequence[ZonedAmount]) -> NodeState:
        """Return the state after the end of a pod that held this."""

    def taken(self, before: NodeState, after: NodeState) -> tuple[TakenAmounts, ...]:
        """Return what the admission took that led from one state to the other. Raises
        TooManyChoicesError."""

    def given_back(self, states: NodeState, taken: Sequence[TakenAmounts]) -> NodeState:
        """Return the state after the end of the pod that took this."""


class PendingAdmission(NamedTuple):
    """A pod on its way to the node. Positions are of the log, 0 for unknown.

    It was sent after `sent_at`. From `runs_at` on its kubelet is known to run it, in whatever
    zones, so it cannot be rejected any more; 0 if it may not have arrived yet. By the node's clock
    it was admitted before second `started_s` was over, 0 for unknown."""

    request: HintRequest
    sent_at: int = 0
    runs_at: int = 0
    started_s: int = 0

    @property
    def is_admitted(self) -> bool:
        return self.runs_at > 0


class SearchState(NamedTuple):
    """One state of the node, and how many pods of each kind are still pending."""

    states: NodeState
    pending: tuple[int, ...]


class ReachableStates(NamedTuple):
    """Every search state that may be reached without the new pod.

    `may_be_rejected` are the kinds of pods that may be rejected even without it, by number, after
    all pods that are known to run: before these, only a pod that was sent earlier can come. If
    there are any kinds, the result is of one base state alone: a pod that is rejected in one state
    may lose the place that another state gives it."""

    kinds: tuple[PendingAdmission, ...]
    search_states: tuple[SearchState, ...]
    may_be_rejected: frozenset[int]


def reachable_states(
    model: Kubelet,
    bases: Collection[NodeState],
    pending: Sequence[PendingAdmission],
    budget: Budget,
) -> ReachableStates:
    """Return what the pending pods may make of the node, if none ended that the report may still
    count. Raises OverBudgetError."""
    kinds, counts = kinds_of(pending)
    if bases and fewest_steps(counts) > budget.left:
        raise OverBudgetError
    may_be_rejected = set[int]()
    reached = dict.fromkeys(SearchState(states, counts) for states in bases)
    unexplored = list(reached)
    while unexplored:
        search_state = unexplored.pop()
        for next_state in _next(model, kinds, search_state, may_be_rejected, budget):
            if next_state not in reached:
                reached[next_state] = None
                unexplored.append(next_state)
    # A pod that is known to run was admitted in fact: states in which it is still pending are past.
    running = [kind for kind, pod in enumerate(kinds) if pod.is_admitted]
    current = [state for state in reached if not any(state.pending[kind] for kind in running)]
    inits_are_over = all(pod.is_admitted for pod in kinds if pod.request.inits)
    if inits_are_over and not any(model.later(states) for states in bases):
        current = [state for state in current if not model.later(state.states)]
    return ReachableStates(kinds, tuple(current), frozenset(may_be_rejected))


def kinds_of(
    pending: Sequence[PendingAdmission],
) -> tuple[tuple[PendingAdmission, ...], tuple[int, ...]]:
    """Return a pod of each kind, and how many there are."""
    by_key = {(pod.is_admitted, pod.request.key): pod for pod in pending}
    numbers = Counter((pod.is_admitted, pod.request.key) for pod in pending)
    return tuple(by_key.values()), tuple([numbers[key] for key in by_key])


def fewest_steps(counts: Sequence[int]) -> int:
    """Return the fewest steps of a search over so many pending pods of each kind: any part of them
    may have been admitted, and one of each kind that is left is then looked at."""
    parts = prod(count + 1 for count in counts)
    return sum(parts // (count + 1) * count for count in counts)


def _next(
    model: Kubelet,
    kinds: Sequence[PendingAdmission],
    search_state: SearchState,
    may_be_rejected: set[int],
    budget: Budget,
) -> list[SearchState]:
    """One pod is admitted, or a pod with init containers starts to run. A rejected pod leaves the
    state as it was; a pod that is known to run was not rejected."""
    states, counts = search_state
    is_current = not any(
        count and pod.is_admitted for count, pod in zip(counts, kinds, strict=True)
    )
    next_states = [SearchState(later, counts) for later in model.later(states)]
    for kind, count in enumerate(counts):
        if not count:
            continue
        budget.spend()
        outcome = _admit(model, states, kinds[kind].request)
        rest = (*counts[:kind], count - 1, *counts[kind + 1 :])
        next_states += [SearchState(node_state, rest) for node_state in outcome.states]
        if outcome.refused and not kinds[kind].is_admitted:
            may_be_rejected.update([kind] if is_current else [])
            next_states.append(SearchState(states, rest))
    return next_states


def _admit(model: Kubelet, states: NodeState, request: HintRequest) -> AdmissionOutcome:
    try:
        return model.admit(states, request)
    except TooManyChoicesError as error:
        raise OverBudgetError from error


def _refuses(model: Kubelet, states: NodeState, request: HintRequest) -> bool:
    try:
        return model.refuses(states, request)
    except TooManyChoicesError as error:
        raise OverBudgetError from error


def judge_newcomer(
    model: Kubelet, before: Sequence[ReachableStates], newcomer: HintRequest, budget: Budget
) -> SearchResult:
    """Return the result for the new pod: "admitted" only if it is admitted from all of `before`.

    UNKNOWN if no state is possible, because the facts about the other pods contradict each other.
    """
    possible = [reachable for reachable in before if reachable.search_states]
    if not possible:
        return UNKNOWN
    try:
        for reachable in possible:
            result = _judge(model, reachable, newcomer, budget)
            if result != "admitted":
                return result
    except OverBudgetError:
        return UNKNOWN
    return "admitted"


def _judge(
    model: Kubelet, before: ReachableStates, newcomer: HintRequest, budget: Budget
) -> SearchResult:
    reached: dict[SearchState, None] = {}
    for states, pending in before.search_states:
        budget.spend()
        if _refuses(model, states, newcomer):
            return "refused"
        if any(pending):
            outcome = _admit(model, states, newcomer)
            reached.update(
                dict.fromkeys(SearchState(node_state, pending) for node_state in outcome.states)
            )
    unexplored = list(reached)
    while unexplored:
        may_be_rejected = set[int]()
        search_state = unexplored.pop()
        for next_state in _next(model, before.kinds, search_state, may_be_rejected, budget):
            if any(next_state.pending) and next_state not in reached:
                reached[next_state] = None
                unexplored.append(next_state)
        if may_be_rejected - before.may_be_rejected:
            return "endangers"
    return "admitted"
