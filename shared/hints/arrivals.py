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

from shared.hints.admission import Admitted, Rules, States
from shared.hints.request import Request
from shared.hints.splits import TooManyChoicesError

Verdict = Literal["admitted", "refused", "endangers", "unknown"]
"""`refused`: in some state the kubelet refuses the pod. `endangers`: it could cost a pod on its way its place."""
UNKNOWN: Verdict = "unknown"


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


class Coming(NamedTuple):
    """A pod on its way, sent after this position, 0 for unknown. `runs`: since this position its
    kubelet is known to have it, nobody knows where; it cannot lose its place. 0 while it may not
    have come yet. `started_s`: by the node's clock it was admitted before this second was over; 0
    for unknown."""

    request: Request
    sent: int = 0
    runs: int = 0
    started_s: int = 0

    @property
    def there(self) -> bool:
        """Has it come for certain?"""
        return self.runs > 0


class Moment(NamedTuple):
    """The node in one of its states, and how many pods of each kind have yet to come."""

    states: States
    coming: tuple[int, ...]


class Reachable(NamedTuple):
    """Every moment that may come without the newcomer. `doomed` are kinds of pods that may be
    refused all the same; where there are such, it is of one state of the node alone: who is doomed
    in one state may lose the place that another gives."""

    kinds: tuple[Coming, ...]
    moments: tuple[Moment, ...]
    doomed: frozenset[int]


def reachable(
    rules: Rules, bases: Collection[States], coming: Sequence[Coming], budget: Budget
) -> Reachable:
    """Whatever the pods on their way may make of the node, where none ended that it may still count
    (`ends`). Raises OverBudgetError."""
    by_key = {(each.there, each.request.key): each for each in coming}
    keys = Counter((each.there, each.request.key) for each in coming)
    counts = tuple([keys[key] for key in by_key])
    if bases and fewest_steps(counts) > budget.left:
        raise OverBudgetError
    kinds, doomed = tuple(by_key.values()), set[int]()
    found = dict.fromkeys(Moment(states, counts) for states in bases)
    pending = list(found)
    while pending:
        moment = pending.pop()
        for after in _next(rules, kinds, moment, doomed, budget):
            if after not in found:
                found[after] = None
                pending.append(after)
    there = [kind for kind, each in enumerate(kinds) if each.there]
    moments = [moment for moment in found if not any(moment.coming[kind] for kind in there)]
    if all(each.there for each in kinds if each.request.inits) and not any(
        rules.later(states) for states in bases
    ):
        moments = [
            moment for moment in moments if not rules.later(moment.states)
        ]  # who runs has done with init containers
    return Reachable(kinds, tuple(moments), frozenset(doomed))


def fewest_steps(counts: Sequence[int]) -> int:
    """What a search over pods on their way takes at least, so many of each kind: any part of them
    may have come, and then one of each kind that is left is looked at."""
    parts = prod(count + 1 for count in counts)
    return sum(parts // (count + 1) * count for count in counts)


def _next(
    rules: Rules, kinds: Sequence[Coming], moment: Moment, doomed: set[int], budget: Budget
) -> list[Moment]:
    """One pod comes, or an init container's pod starts to run. A refused pod leaves the state as it
    was; one that is known to be there was not refused."""
    found = [Moment(states, moment.coming) for states in rules.later(moment.states)]
    for kind, count in enumerate(moment.coming):
        if count:
            budget.spend()
            admitted = _admit(rules, moment.states, kinds[kind].request)
            coming = (*moment.coming[:kind], count - 1, *moment.coming[kind + 1 :])
            found += [Moment(states, coming) for states in admitted.states]
            if admitted.refused and not kinds[kind].there:
                doomed.add(kind)
                found.append(Moment(moment.states, coming))
    return found


def _admit(rules: Rules, states: States, request: Request) -> Admitted:
    try:
        return rules.admit(states, request)
    except TooManyChoicesError as error:
        raise OverBudgetError from error


def _refuses(rules: Rules, states: States, request: Request) -> bool:
    """What the pod leaves is not asked for here: nobody need come after it."""
    try:
        return rules.refuses(states, request)
    except TooManyChoicesError as error:
        raise OverBudgetError from error


def judged(rules: Rules, before: Sequence[Reachable], newcomer: Request, budget: Budget) -> Verdict:
    """The verdict on a newcomer, "admitted" if it is in all of these; UNKNOWN where what is known
    of the others contradicts itself."""
    possible = [each for each in before if each.moments]
    if not possible:
        return UNKNOWN
    try:
        verdicts = (_judged(rules, each, newcomer, budget) for each in possible)
        return next((verdict for verdict in verdicts if verdict != "admitted"), "admitted")
    except OverBudgetError:
        return UNKNOWN


def _judged(rules: Rules, before: Reachable, newcomer: Request, budget: Budget) -> Verdict:
    seen: dict[Moment, None] = {}
    for moment in before.moments:
        budget.spend()
        if _refuses(rules, moment.states, newcomer):
            return "refused"
        if any(moment.coming):
            admitted = _admit(rules, moment.states, newcomer)
            seen.update(dict.fromkeys(Moment(states, moment.coming) for states in admitted.states))
    pending = list(seen)
    while pending:
        doomed = set[int]()
        for after in _next(rules, before.kinds, pending.pop(), doomed, budget):
            if any(after.coming) and after not in seen:
                seen[after] = None
                pending.append(after)
        if doomed - before.doomed:
            return "endangers"
    return "admitted"
