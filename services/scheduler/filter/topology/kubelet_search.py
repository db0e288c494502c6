"""What a node's kubelet may look like before a newcomer, kept as long as the node's facts stand.

An own reservation adds one pod on its way and leaves the rest: so one decision after another is
cheap. Must not know bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from services.scheduler.snapshot.node_info import NodeInfo
from services.scheduler.snapshot.pod_class import Plan
from shared.domain.policies import BEST_EFFORT
from shared.hints.admission import AdmissionOutcome, NodeState
from shared.hints.admission_orders import (
    UNKNOWN,
    Budget,
    OverBudgetError,
    PendingAdmission,
    ReachableStates,
    SearchResult,
    judge_newcomer,
    reachable_states,
)
from shared.hints.ends import reachable_states_after_ends
from shared.hints.hidden_devices import asked_of
from shared.hints.orders import NOT_YET, EndedPod, disorder
from shared.hints.provider import RequestedAmounts
from shared.hints.request import HintRequest, request_of
from shared.hints.splits import TooManyChoicesError
from shared.ledger.device_views import in_doubt
from shared.ledger.kubelet_states import KubeletStates, TooManyStates, kubelet_states
from shared.ledger.state import Charge

MOST_COMING = 64
"""Pods on their way that a prediction follows; beside more of them nothing is foretold."""

MOST_VERDICTS = 64
"""Verdicts of searches that are kept; beyond them all are searched for again, which changes nothing."""

Key = tuple[str, str, bool, RequestedAmounts]
"""Policy, scope, whether the newcomer has init containers, and what it asks for of devices of which some may be hidden."""


class Searched(NamedTuple):
    """A search's answer within `budget` steps, and how many it took: the same whoever asks."""

    verdict: SearchResult
    budget: int
    taken: int


class KubeletSearch:
    """`states` is None where there are too many; `bounds` names what of them is only known within
    bounds. `pending` counts own reservations already among those on their way."""

    def __init__(self, states: KubeletStates | TooManyStates, coming: int) -> None:
        self.states = states if isinstance(states, KubeletStates) else None
        self.bounds, self.pending = states.bounds, coming
        self._before: tuple[ReachableStates, ...] | None = None
        self._steps = -1
        self._needed = 0
        self._disorder = -1
        self._likely: NodeState | None = None
        self._verdicts: dict[object, Searched] = {}

    @property
    def disorder(self) -> int:
        """What a search costs grows with it."""
        if self._disorder < 0:
            self._disorder = (
                disorder(self.states.pending, self.states.ended_pods)
                if self.states is not None
                else NOT_YET
            )
        return self._disorder

    def verdict(self, request: HintRequest, steps: int) -> SearchResult:
        """The search's answer. What it is with some steps it is with more, unless they were too
        few.
        """
        known = self._verdicts.get(request.key)
        if known is not None and (
            steps <= known.budget if known.verdict == UNKNOWN else steps >= known.budget
        ):
            return known.verdict
        if len(self._verdicts) >= MOST_VERDICTS:
            self._verdicts.clear()
        found = self._verdicts[request.key] = self._searched(request, steps)
        return found.verdict

    def steps_taken(self, request: HintRequest) -> int:
        """By the search whose verdict is kept; 0 where none is."""
        known = self._verdicts.get(request.key)
        return known.taken if known is not None else 0

    def _searched(self, request: HintRequest, steps: int) -> Searched:
        before, budget = self.before(steps), Budget(steps)
        if self.states is None or before is None:
            return Searched(UNKNOWN, steps, steps if self.states is not None else 0)
        found = judge_newcomer(self.states.model, before, request, budget)
        return Searched(found, steps, self._needed + steps - budget.left)

    def before(self, steps: int) -> Sequence[ReachableStates] | None:
        """Every moment that may come before the newcomer, by the node's states where they must be
        told apart. None where `steps` do not reach that far, also where somebody has looked with
        more of them: a verdict that depends on who asked before could not be made again."""
        states = self.states
        if self._before is None and states is not None and steps > self._steps:
            self._steps, budget = steps, Budget(steps)
            try:
                self._before = _all_reachable(states, budget)
                self._needed = steps - budget.left
            except OverBudgetError:
                self._before = None
        return self._before if steps >= self._needed else None

    def likely(self, request: HintRequest) -> AdmissionOutcome | None:
        """What becomes of the newcomer if all on their way came in the order in which they were
        reserved; None where nobody can say."""
        states = self.states
        if states is None or len(states.pending) > MOST_COMING or not _plain(states.ended_pods):
            return None
        try:
            now = self._likely
            if now is None:
                now = states.model.released(
                    states.bases[0], [item for gone in states.ended_pods for item in gone.held]
                )
                for each in states.pending:
                    now = _after(states, now, each.request)
                self._likely = now
            return states.model.admit(now, request)
        except TooManyChoicesError:
            return None

    def add(self, charge: Charge) -> None:
        """An own reservation is on its way, too."""
        self.pending += 1
        if self.states is None or not charge.demand:
            return
        request, likely = request_of(charge.demand), self._likely
        states = self.states
        self.states = states._replace(
            pending=(*states.pending, PendingAdmission(request, charge.sent_at))
        )
        self._before, self._steps, self._needed, self._disorder, self._likely, self._verdicts = (
            None,
            -1,
            0,
            -1,
            None,
            {},
        )
        if likely is not None and len(states.pending) < MOST_COMING:
            try:
                self._likely = _after(states, likely, request)
            except TooManyChoicesError:
                self._likely = None


def _plain(gone: Sequence[EndedPod]) -> bool:
    """One that is listed may have ended before all others came; of more nobody expects an order."""
    return not gone or (len(gone) == 1 and gone[0].request is None)


def _all_reachable(states: KubeletStates, budget: Budget) -> tuple[ReachableStates, ...]:
    """From all bases together, which meet again and again; from each alone where somebody is doomed
    from one of them.
    """
    together = _reachable(states, states.bases, budget)
    if len(states.bases) == 1 or not together.may_be_rejected:
        return (together,)
    return tuple([_reachable(states, (base,), budget) for base in states.bases])


def _reachable(
    states: KubeletStates, bases: tuple[NodeState, ...], budget: Budget
) -> ReachableStates:
    if states.ended_pods:
        return reachable_states_after_ends(
            states.model, bases, states.pending, states.ended_pods, budget
        )
    return reachable_states(states.model, bases, states.pending, budget)


def _after(states: KubeletStates, now: NodeState, request: HintRequest) -> NodeState:
    admitted = states.model.admit(now, request)
    return admitted.states[0] if admitted.states else now


def kubelet_search_of(node_info: NodeInfo, plan: Plan) -> KubeletSearch:
    """The node under the plan's rule."""
    kept = node_info.kubelet_searches
    if kept is None or kept[0] is not node_info.ledger or kept[1] is not node_info.claims:
        node_info.kubelet_searches = kept = (
            node_info.ledger,
            node_info.claims,
            {},
            in_doubt(node_info.ledger, BEST_EFFORT),
        )
    hidden = asked_of(kept[3], request_of(plan.demand)) if kept[3] else ()
    key: Key = plan.rule.policy, plan.rule.scope, plan.inits, hidden
    found: KubeletSearch | None = kept[2].get(key)
    if found is None or found.pending != len(node_info.assumed):
        found = kept[2][key] = _look(node_info, plan, hidden)
    return found


def _look(node_info: NodeInfo, plan: Plan, hidden: RequestedAmounts = ()) -> KubeletSearch:
    if node_info.report is None:
        return KubeletSearch(TooManyStates(frozenset()), len(node_info.assumed))
    rule, charges = plan.rule, node_info.charges()
    states = kubelet_states(
        node_info.ledger,
        node_info.report,
        charges,
        node_info.claims,
        rule.policy,
        rule.scope,
        plan.inits,
        hidden,
    )
    return KubeletSearch(states, len(node_info.assumed))


def reserved(node_info: NodeInfo, charge: Charge) -> None:
    """Tell the node's outlooks of an own reservation. They are made anew where an init container
    comes, as those that know CPUs by number only must know then which are free; where it asks for
    devices of which some may be hidden; and where pods ended that the report may still count:
    before or after?"""
    kept = node_info.kubelet_searches
    if kept is None:
        return
    hidden = any(name in part.amounts for part in charge.demand for name in kept[3])
    if (
        hidden
        or node_info.ledger.ended
        or node_info.ledger.freed
        or any(part.kind == "init" for part in charge.demand)
    ):
        node_info.kubelet_searches = None
        return
    for outlook in kept[2].values():
        outlook.add(charge)
