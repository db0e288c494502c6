"""May this pod go to this node? Kubelets admit in order of arrival: it must be admitted whoever
comes before it, and no pod that is on its way already may be refused because of it.

The node's states are those that the report allows, and all that pods on their way may make of them,
in every order. Pods that ask alike are told apart by number only. The search is bounded in steps,
never in time, so that a verdict can be reproduced; where the budget ends the answer is "nobody
knows". Must not know the ledger, names or a clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from math import prod
from typing import Literal, NamedTuple

from shared.hints.admission import AdmissionOutcome, KubeletModel, NodeState
from shared.hints.request import HintRequest
from shared.hints.splits import TooManyChoicesError

SearchResult = Literal["admitted", "refused", "endangers", "unknown"]
"""`refused`: in some state the kubelet refuses the pod. `endangers`: it could cost a pod on its way its place."""
UNKNOWN: SearchResult = "unknown"


class OverBudgetError(Exception):
    """More steps than may be taken."""


class Budget:
    """Steps left: admissions that may still be looked at."""

    __slots__ = ("left",)

    def __init__(self, steps: int) -> None:
        self.left = steps

    def spend(self) -> None:
        """One step. Raises OverBudgetError when none is left."""
        if self.left <= 0:
            raise OverBudgetError
        self.left -= 1


class PendingAdmission(NamedTuple):
    """A pod on its way, sent after this position, 0 for unknown. `runs_at`: since this position its
    kubelet is known to have it, nobody knows where; it cannot lose its place. 0 while it may not
    have come yet. `started_s`: by the node's clock it was admitted before this second was over; 0
    for unknown."""

    request: HintRequest
    sent_at: int = 0
    runs_at: int = 0
    started_s: int = 0

    @property
    def is_admitted(self) -> bool:
        """Has it come for certain?"""
        return self.runs_at > 0


class SearchState(NamedTuple):
    """The node in one of its states, and how many pods of each kind have yet to come."""

    states: NodeState
    pending: tuple[int, ...]


class ReachableStates(NamedTuple):
    """Every moment that may come without the newcomer. `may_be_rejected` are kinds of pods that may be
    refused all the same; where there are such, it is of one state of the node alone: who is doomed
    in one state may lose the place that another gives."""

    kinds: tuple[PendingAdmission, ...]
    search_states: tuple[SearchState, ...]
    may_be_rejected: frozenset[int]


def reachable_states(
    model: KubeletModel,
    bases: Collection[NodeState],
    pending: Sequence[PendingAdmission],
    budget: Budget,
) -> ReachableStates:
    """Whatever the pods on their way may make of the node, where none ended that it may still count
    (`ends`). Raises OverBudgetError."""
    by_key = {(each.is_admitted, each.request.key): each for each in pending}
    keys = Counter((each.is_admitted, each.request.key) for each in pending)
    counts = tuple([keys[key] for key in by_key])
    if bases and fewest_steps(counts) > budget.left:
        raise OverBudgetError
    kinds, may_be_rejected = tuple(by_key.values()), set[int]()
    found = dict.fromkeys(SearchState(states, counts) for states in bases)
    unexplored = list(found)
    while unexplored:
        moment = unexplored.pop()
        for after in _next(model, kinds, moment, may_be_rejected, budget):
            if after not in found:
                found[after] = None
                unexplored.append(after)
    is_admitted = [kind for kind, each in enumerate(kinds) if each.is_admitted]
    search_states = [
        moment for moment in found if not any(moment.pending[kind] for kind in is_admitted)
    ]
    if all(each.is_admitted for each in kinds if each.request.inits) and not any(
        model.later(states) for states in bases
    ):
        search_states = [
            moment for moment in search_states if not model.later(moment.states)
        ]  # who runs has done with init containers
    return ReachableStates(kinds, tuple(search_states), frozenset(may_be_rejected))


def fewest_steps(counts: Sequence[int]) -> int:
    """What a search over pods on their way takes at least, so many of each kind: any part of them
    may have come, and then one of each kind that is left is looked at."""
    parts = prod(count + 1 for count in counts)
    return sum(parts // (count + 1) * count for count in counts)


def _next(
    model: KubeletModel,
    kinds: Sequence[PendingAdmission],
    moment: SearchState,
    may_be_rejected: set[int],
    budget: Budget,
) -> list[SearchState]:
    """One pod comes, or an init container's pod starts to run. A refused pod leaves the state as it
    was; one that is known to be there was not refused."""
    found = [SearchState(states, moment.pending) for states in model.later(moment.states)]
    for kind, count in enumerate(moment.pending):
        if count:
            budget.spend()
            admitted = _admit(model, moment.states, kinds[kind].request)
            pending = (*moment.pending[:kind], count - 1, *moment.pending[kind + 1 :])
            found += [SearchState(states, pending) for states in admitted.states]
            if admitted.refused and not kinds[kind].is_admitted:
                may_be_rejected.add(kind)
                found.append(SearchState(moment.states, pending))
    return found


def _admit(model: KubeletModel, states: NodeState, request: HintRequest) -> AdmissionOutcome:
    try:
        return model.admit(states, request)
    except TooManyChoicesError as error:
        raise OverBudgetError from error


def _refuses(model: KubeletModel, states: NodeState, request: HintRequest) -> bool:
    """What the pod leaves is not asked for here: nobody need come after it."""
    try:
        return model.refuses(states, request)
    except TooManyChoicesError as error:
        raise OverBudgetError from error


def judge_newcomer(
    model: KubeletModel, before: Sequence[ReachableStates], newcomer: HintRequest, budget: Budget
) -> SearchResult:
    """The verdict on a newcomer, "admitted" if it is in all of these; UNKNOWN where what is known
    of the others contradicts itself."""
    possible = [each for each in before if each.search_states]
    if not possible:
        return UNKNOWN
    try:
        verdicts = (_judged(model, each, newcomer, budget) for each in possible)
        return next((verdict for verdict in verdicts if verdict != "admitted"), "admitted")
    except OverBudgetError:
        return UNKNOWN


def _judged(
    model: KubeletModel, before: ReachableStates, newcomer: HintRequest, budget: Budget
) -> SearchResult:
    seen: dict[SearchState, None] = {}
    for moment in before.search_states:
        budget.spend()
        if _refuses(model, moment.states, newcomer):
            return "refused"
        if any(moment.pending):
            admitted = _admit(model, moment.states, newcomer)
            seen.update(
                dict.fromkeys(SearchState(states, moment.pending) for states in admitted.states)
            )
    unexplored = list(seen)
    while unexplored:
        may_be_rejected = set[int]()
        for after in _next(model, before.kinds, unexplored.pop(), may_be_rejected, budget):
            if any(after.pending) and after not in seen:
                seen[after] = None
                unexplored.append(after)
        if may_be_rejected - before.may_be_rejected:
            return "endangers"
    return "admitted"
