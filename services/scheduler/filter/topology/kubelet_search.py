"""The kubelet search: what a node's kubelet may look like before a newcomer, and its answer then.

If a search over all orders exceeds a large budget, sampled states are asked: most answers are
refusals, and one state is enough for one. The search is kept as long as the node stays as it is. An
assumed pod adds one pending admission and leaves the rest, so that one decision after another is
cheap. Must not know bounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from services.scheduler.snapshot.node_info import NodeInfo
from services.scheduler.snapshot.pod_class import Plan
from shared.domain.policies import BEST_EFFORT
from shared.hints.admission import AdmissionOutcome, ContainerZones, NodeState
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
from shared.hints.request import HintRequest, promised, request_of
from shared.hints.sample_states import sample_states
from shared.hints.splits import TooManyChoicesError
from shared.ledger.device_views import in_doubt
from shared.ledger.kubelet_states import KubeletStates, TooManyStates, kubelet_states
from shared.ledger.state import Charge

# Next to more pending pods, nothing is predicted.
MOST_PENDING = 64
# Smaller budgets sample no states, and a refusal by a sample counts as so many steps.
SAMPLED_FROM = 64
# Results that are kept; beyond them all are searched again, which changes nothing.
MOST_RESULTS = 64

# Policy, scope, whether the newcomer has init containers, and its request for devices of which some
# may be hidden.
Key = tuple[str, str, bool, RequestedAmounts]


class KeptResult(NamedTuple):
    """A search's answer within `budget` steps, and the steps it took: the same for any caller."""

    result: SearchResult
    budget: int
    taken: int


class KubeletSearch:
    """`states` is None if there are too many; `bounds` names what of them is only bounded.
    `assumed` counts the assumed pods among the pending ones.
    """

    def __init__(self, states: KubeletStates | TooManyStates, assumed: int) -> None:
        self.states = states if isinstance(states, KubeletStates) else None
        self.bounds, self.assumed = states.bounds, assumed
        self._likely: NodeState | None = None
        self._forget()

    def _forget(self) -> None:
        self._before: tuple[ReachableStates, ...] | None = None
        # The steps that were tried to reach the states before the newcomer, and those needed.
        self._tried = -1
        self._needed = 0
        self._disorder = -1
        self._results: dict[object, KeptResult] = {}
        # Sampled states so far, and those to come.
        self._samples: list[tuple[NodeState, int]] = []
        self._more_samples: Iterator[tuple[NodeState, int]] | None = None

    @property
    def disorder(self) -> int:
        """A search's cost grows with it."""
        if self._disorder < 0:
            self._disorder = NOT_YET
            if self.states is not None:
                self._disorder = disorder(self.states.pending, self.states.ended_pods)
        return self._disorder

    def result(self, request: HintRequest, steps: int) -> SearchResult:
        """Return the search's answer. An answer with some steps is the same with more, unless they
        were too few.
        """
        kept = self._results.get(request.key)
        if kept is not None:
            if kept.result == UNKNOWN and steps <= kept.budget:
                return UNKNOWN
            if kept.result != UNKNOWN and steps >= kept.budget:
                return kept.result
        if len(self._results) >= MOST_RESULTS:
            self._results.clear()
        kept = self._results[request.key] = self._search(request, steps)
        return kept.result

    def steps_taken(self, request: HintRequest) -> int:
        """Return the steps of the search that gave the kept result; 0 without one."""
        kept = self._results.get(request.key)
        return kept.taken if kept is not None else 0

    def _search(self, request: HintRequest, steps: int) -> KeptResult:
        if self.states is None:
            return KeptResult(UNKNOWN, steps, 0)
        earlier, budget = self.before(steps), Budget(steps)
        if earlier is not None:
            result = judge_newcomer(self.states.model, earlier, request, budget)
            if result != UNKNOWN:
                return KeptResult(result, steps, self._needed + steps - budget.left)
        if steps >= SAMPLED_FROM:
            taken = self._steps_until_refused(request, steps)
            if taken:
                return KeptResult("refused", steps, max(taken, SAMPLED_FROM))
        return KeptResult(UNKNOWN, steps, steps)

    def _steps_until_refused(self, request: HintRequest, steps: int) -> int:
        """Return the steps to a sampled state that rejects the pod, 0 if they exceed `steps`."""
        assert self.states is not None
        model = self.states.model
        for asked, (state, taken) in enumerate(self._sampled(), 1):
            if asked + taken > steps:
                break
            try:
                if model.refuses(state, request):
                    return asked + taken
            except TooManyChoicesError:
                continue
        return 0

    def _sampled(self) -> Iterator[tuple[NodeState, int]]:
        yield from self._samples
        if self._more_samples is None and self.states is not None:
            states = self.states
            self._more_samples = sample_states(
                states.model, states.bases, states.pending, states.ended_pods
            )
        for sample in self._more_samples or ():
            self._samples.append(sample)
            yield sample

    def before(self, steps: int) -> Sequence[ReachableStates] | None:
        """Return all states before the newcomer, by base state if they must be kept apart.

        None if `steps` do not reach that far, even if a caller with more of them came first: a
        result that depends on earlier callers could not be repeated.
        """
        states = self.states
        if self._before is None and states is not None and steps > self._tried:
            self._tried, budget = steps, Budget(steps)
            try:
                self._before = _all_reachable(states, budget)
                self._needed = steps - budget.left
            except OverBudgetError:
                self._before = None
        return self._before if steps >= self._needed else None

    def likely(self, request: HintRequest) -> AdmissionOutcome | None:
        """Return what becomes of the newcomer if all pending pods are admitted in the order of
        their reservations; None if that cannot be said.
        """
        states = self.states
        try:
            likely = self._likely_state()
            if states is None or likely is None:
                return None
            return states.model.admit(likely, request)
        except TooManyChoicesError:
            return None

    def likely_zones(self, request: HintRequest) -> tuple[ContainerZones, ...] | None:
        """Return where each container of the newcomer takes what it holds, on the same terms as
        `likely`.
        """
        states = self.states
        try:
            likely = self._likely_state()
            if states is None or likely is None:
                return None
            return states.model.zones(likely, request)
        except TooManyChoicesError:
            return None

    def _likely_state(self) -> NodeState | None:
        """Raises TooManyChoicesError."""
        states, likely = self.states, self._likely
        if states is None or len(states.pending) > MOST_PENDING:
            return None
        if not _has_one_order(states.ended_pods):
            return None
        if likely is None:
            released = [item for ended in states.ended_pods for item in ended.held]
            likely = states.model.released(states.bases[0], released)
            for pending in states.pending:
                likely = _after(states, likely, pending.request)
            self._likely = likely
        return likely

    def add(self, charge: Charge) -> None:
        """Count an assumed pod as pending, too."""
        self.assumed += 1
        states = self.states
        if states is None or not charge.demand:
            return
        request, likely = promised(request_of(charge.demand), charge.one_zone), self._likely
        pending = PendingAdmission(request, charge.sent_at)
        self.states = states._replace(pending=(*states.pending, pending))
        self._likely = None
        self._forget()
        if likely is not None and len(states.pending) < MOST_PENDING:
            try:
                self._likely = _after(states, likely, request)
            except TooManyChoicesError:
                self._likely = None


def _has_one_order(ended_pods: Sequence[EndedPod]) -> bool:
    """A single listed pod may have ended before all others came; several have no expected order."""
    return not ended_pods or (len(ended_pods) == 1 and ended_pods[0].request is None)


def _all_reachable(states: KubeletStates, budget: Budget) -> tuple[ReachableStates, ...]:
    """From all base states together, which meet again and again; from each alone if a pod may be
    rejected from one of them.
    """
    together = _reachable(states, states.bases, budget)
    if len(states.bases) == 1 or not together.may_be_rejected:
        return (together,)
    return tuple([_reachable(states, (base,), budget) for base in states.bases])


def _reachable(
    states: KubeletStates, bases: tuple[NodeState, ...], budget: Budget
) -> ReachableStates:
    model, pending = states.model, states.pending
    if states.ended_pods:
        return reachable_states_after_ends(model, bases, pending, states.ended_pods, budget)
    return reachable_states(model, bases, pending, budget)


def _after(states: KubeletStates, state: NodeState, request: HintRequest) -> NodeState:
    admitted = states.model.admit(state, request)
    return admitted.states[0] if admitted.states else state


class _Searches(NamedTuple):
    """The searches of one node, by key, as long as its ledger's node and claims stay."""

    ledger: object
    claims: object
    by_key: dict[Key, KubeletSearch]
    in_doubt: frozenset[str]


def kubelet_search_of(node_info: NodeInfo, plan: Plan) -> KubeletSearch:
    """Return the node's search under the plan's rule."""
    kept: _Searches | None = node_info.kubelet_searches
    if kept is None or kept.ledger is not node_info.ledger or kept.claims is not node_info.claims:
        doubtful = in_doubt(node_info.ledger, BEST_EFFORT)
        kept = _Searches(node_info.ledger, node_info.claims, {}, doubtful)
        node_info.kubelet_searches = kept
    hidden = asked_of(kept.in_doubt, request_of(plan.demand)) if kept.in_doubt else ()
    key: Key = plan.rule.policy, plan.rule.scope, plan.has_init_demand, hidden
    search = kept.by_key.get(key)
    if search is None or search.assumed != len(node_info.assumed):
        search = kept.by_key[key] = _new_search(node_info, plan, hidden)
    return search


def _new_search(node_info: NodeInfo, plan: Plan, hidden: RequestedAmounts = ()) -> KubeletSearch:
    if node_info.report is None:
        return KubeletSearch(TooManyStates(frozenset()), len(node_info.assumed))
    states = kubelet_states(
        node_info.ledger,
        node_info.report,
        node_info.charges(),
        node_info.claims,
        plan.rule.policy,
        plan.rule.scope,
        plan.has_init_demand,
        hidden,
    )
    return KubeletSearch(states, len(node_info.assumed))


def note_assumed_in_searches(node_info: NodeInfo, charge: Charge) -> None:
    """Add an assumed pod to the node's searches.

    They are built again if an init container comes (searches that know CPUs by number only must
    know then which are free), if it requests devices of which some may be hidden, or if pods ended
    that the report may still count, before or after it.
    """
    kept: _Searches | None = node_info.kubelet_searches
    if kept is None:
        return
    ended = node_info.ledger.ended or node_info.ledger.freed
    has_init = any(part.kind == "init" for part in charge.demand)
    hidden = any(name in part.amounts for part in charge.demand for name in kept.in_doubt)
    if ended or has_init or hidden:
        node_info.kubelet_searches = None
        return
    for search in kept.by_key.values():
        search.add(charge)
