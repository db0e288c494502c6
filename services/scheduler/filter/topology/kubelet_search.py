"""The kubelet search: the states that a node's kubelet may be in before a new pod arrives, and its
answer in each.

It runs on the node's plain form if there is one (`shared/hints/plain_model.py`). It is kept as long
as the node stays as it is. An assumed pod adds one pending admission and leaves the rest, so that
one decision after another is cheap. Must not know bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from services.scheduler.filter.topology.compiled_search import CompiledExploration, is_compiled
from services.scheduler.snapshot.node_info import NodeInfo
from services.scheduler.snapshot.pod_class import Plan
from shared.domain.policies import BEST_EFFORT
from shared.hints.admission import AdmissionOutcome, ContainerZones, NodeState
from shared.hints.admission_orders import (
    UNKNOWN,
    PendingAdmission,
    SearchResult,
)
from shared.hints.exploration import Exploration, KeptResult
from shared.hints.hidden_devices import asked_of
from shared.hints.orders import NOT_YET, EndedPod, Pod, disorder
from shared.hints.plain_model import PlainForm, plain_form
from shared.hints.provider import RequestedAmounts
from shared.hints.request import HintRequest, promised, request_of
from shared.hints.splits import TooManyChoicesError
from shared.ledger.device_views import in_doubt
from shared.ledger.kubelet_states import (
    PARTIALLY_LISTED,
    KubeletStates,
    TooManyStates,
    kubelet_states,
)
from shared.ledger.partial_listings import Before, as_before
from shared.ledger.state import Charge

# Next to more pending pods, nothing is predicted.
MOST_PENDING = 64
# The number of admissions on a plain form that count as one step, because they are cheaper: if pods
# ended, and if not. Without the kernel both are the same, so that the answers are.
PLAIN_A_STEP = 8
COMPILED_A_STEP = 128
# Results that are kept; beyond them all are searched again, which changes nothing.
MOST_RESULTS = 64

# Policy, scope, whether the newcomer has init containers, its request for devices of which some may
# be hidden, and whether the search only predicts (`plays_again`).
Key = tuple[str, str, bool, RequestedAmounts, bool]


class KubeletSearch:
    """`states` is None if there are too many; `bounds` names what of them is only bounded.
    `assumed` counts the assumed pods among the pending ones. The first `begun` of these are played
    again, and come before all others.
    """

    def __init__(self, states: KubeletStates | TooManyStates, assumed: int, begun: int = 0) -> None:
        self.states = states if isinstance(states, KubeletStates) else None
        self.bounds, self.assumed, self._begun = states.bounds, assumed, begun
        self._likely: NodeState | None = None
        # None until it is computed; then holds the plain form, or None if the node has none.
        self._plain_form: tuple[PlainForm | None] | None = None
        self._forget()

    def _forget(self) -> None:
        self._disorder = -1
        self._results: dict[tuple[object, int], KeptResult] = {}
        self._exact: Exploration | None = None
        self._plain: Exploration | None = None

    def is_plain(self, request: HintRequest) -> bool:
        """Return whether a search for this request runs on the node's plain form."""
        exploration = self.exploration(request)
        return exploration is not None and exploration is not self._exact

    @property
    def has_pending(self) -> bool:
        """Whether other pods may reach the kubelet before or after the new pod."""
        return self.states is not None and len(self.states.pending) > self._begun

    @property
    def disorder(self) -> int:
        """A measure by which the cost of a search grows."""
        if self._disorder < 0:
            self._disorder = NOT_YET
            if self.states is not None:
                self._disorder = disorder(self.states.pending, self.states.ended_pods)
        return self._disorder

    def result(self, request: HintRequest, steps: int) -> SearchResult:
        """Return the search's answer within so many steps."""
        if steps <= 0:
            return UNKNOWN
        kept = self._results.get((request.key, steps))
        if kept is None:
            exploration = self.exploration(request)
            if exploration is None:
                return UNKNOWN
            if len(self._results) >= MOST_RESULTS:
                self._results.clear()
            kept = self._results[request.key, steps] = exploration.search(request, steps)
        return kept.result

    def exploration(self, request: HintRequest) -> Exploration | None:
        """Return the search for pods with this request; None for too many states."""
        if self.states is None:
            return None
        if self._plain_form is None:
            self._plain_form = (_plain_form(self.states),)
        (form,) = self._plain_form
        if form is None or form.model.needs(request) is None:
            return self.exact()
        if self._plain is None:
            pending, ended = self.states.pending, self.states.ended_pods
            kind = CompiledExploration if is_compiled(pending, ended) else Exploration
            admissions = PLAIN_A_STEP if ended else COMPILED_A_STEP
            self._plain = kind(form.model, form.bases, pending, ended, admissions)
        return self._plain

    def exact(self) -> Exploration | None:
        """Return the search on the kubelet model."""
        states = self.states
        if self._exact is None and states is not None:
            self._exact = Exploration(states.model, states.bases, states.pending, states.ended_pods)
        return self._exact

    def refuses_when_full(self, request: HintRequest, only_if_plain: bool = False) -> bool:
        """Return whether the kubelet rejects the pod in a state that is cheap to reach: after all
        pending pods came, in one order. Most refusals show there.
        """
        if self.states is None or len(self.states.pending) > MOST_PENDING:
            return False
        exploration = self.exploration(request)
        if exploration is None or (only_if_plain and exploration is self._exact):
            return False
        return exploration.refuses_when_full(request)

    def steps_taken(self, request: HintRequest, steps: int) -> int:
        """Return the steps of the search with this budget; 0 without one."""
        kept = self._results.get((request.key, steps))
        return kept.taken if kept is not None else 0

    def likely(self, request: HintRequest) -> AdmissionOutcome | None:
        """Return the outcome for the new pod if all pending pods are admitted in the order of their
        reservations; None if that cannot be predicted.
        """
        states = self.states
        try:
            likely = self._likely_state()
            if states is None or likely is None or not _has_one_order(states.ended_pods):
                return None
            return states.model.admit(likely, request)
        except TooManyChoicesError:
            return None

    def likely_zones(self, request: HintRequest) -> tuple[ContainerZones, ...] | None:
        """Return the zones of each container of the new pod, as for `likely`. Several ended pods
        count as if they had ended first.
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
        """Return the state after all pending pods, in their order; None if it cannot be predicted.
        Raises TooManyChoicesError.
        """
        states, likely = self.states, self._likely
        if states is None or len(states.pending) > MOST_PENDING:
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
        form = self._plain_form[0] if self._plain_form is not None else None
        if form is not None and form.model.needs(request) is None:
            self._plain_form = (None,)
        self._forget()
        if likely is not None and len(states.pending) < MOST_PENDING:
            try:
                self._likely = _after(states, likely, request)
            except TooManyChoicesError:
                self._likely = None


def _has_one_order(ended_pods: Sequence[EndedPod]) -> bool:
    """A single listed pod may have ended before all others came; several have no expected order."""
    return not ended_pods or (len(ended_pods) == 1 and ended_pods[0].request is None)


def _plain_form(states: KubeletStates) -> PlainForm | None:
    pods: tuple[Pod, ...] = (*states.pending, *states.ended_pods)
    requests = [pod.request for pod in pods if pod.request is not None]
    freed = [pod.held for pod in states.ended_pods]
    return plain_form(states.model, states.bases, requests, freed)


def _after(states: KubeletStates, state: NodeState, request: HintRequest) -> NodeState:
    admitted = states.model.admit(state, request)
    return admitted.states[0] if admitted.states else state


class _Answer(NamedTuple):
    """A filter result, the steps that its search took, and the assumed pods on the node then."""

    plan: Plan
    result: SearchResult
    taken: int
    assumed: int


class _Searches(NamedTuple):
    """The searches of one node, by key, and filter results by request and budget, as long as its
    ledger's node and claims stay.
    """

    ledger: object
    claims: object
    by_key: dict[Key, KubeletSearch]
    in_doubt: frozenset[str]
    answers: dict[tuple[int, int], _Answer]


def likely_search_of(node_info: NodeInfo, plan: Plan) -> KubeletSearch:
    """Return the search that predicts the pod's zones: if the report was made during an admission,
    one that plays this admission again.
    """
    search = kubelet_search_of(node_info, plan)
    if search.states is not None or PARTIALLY_LISTED not in search.bounds:
        return search
    return kubelet_search_of(node_info, plan, plays_again=True)


def kubelet_search_of(node_info: NodeInfo, plan: Plan, plays_again: bool = False) -> KubeletSearch:
    """Return the node's search under the plan's rule."""
    kept = _searches_of(node_info)
    if kept is None:
        doubtful = in_doubt(node_info.ledger, BEST_EFFORT)
        kept = _Searches(node_info.ledger, node_info.claims, {}, doubtful, {})
        node_info.kubelet_searches = kept
    hidden = asked_of(kept.in_doubt, request_of(plan.demand)) if kept.in_doubt else ()
    key: Key = plan.rule.policy, plan.rule.scope, plan.has_init_demand, hidden, plays_again
    search = kept.by_key.get(key)
    if search is None or search.assumed != len(node_info.assumed):
        search = kept.by_key[key] = _new_search(node_info, plan, hidden, plays_again)
    return search


def _searches_of(node_info: NodeInfo) -> _Searches | None:
    kept: _Searches | None = node_info.kubelet_searches
    if kept is None or kept.ledger is not node_info.ledger or kept.claims is not node_info.claims:
        return None
    return kept


def known_answer(node_info: NodeInfo, plan: Plan, steps: int) -> SearchResult | None:
    """Return the noted filter result with this budget, None without one."""
    answer = _answer(node_info, plan, steps)
    return answer.result if answer is not None else None


def steps_taken(node_info: NodeInfo, plan: Plan, steps: int) -> int:
    """Return the steps of the search for the noted filter result with this budget."""
    answer = _answer(node_info, plan, steps)
    return answer.taken if answer is not None else 0


def _answer(node_info: NodeInfo, plan: Plan, steps: int) -> _Answer | None:
    kept = _searches_of(node_info)
    answer = kept.answers.get((id(plan.demand), steps)) if kept is not None else None
    if answer is None or answer.assumed != len(node_info.assumed):
        return None
    return answer if answer.plan is plan or answer.plan == plan else None


def note_answer(node_info: NodeInfo, plan: Plan, steps: int, result: SearchResult) -> None:
    """Keep the filter result of a node that has searches, because the last resort, explanations and
    other pods need it again.
    """
    kept = _searches_of(node_info)
    if kept is not None:
        if len(kept.answers) >= MOST_RESULTS:
            kept.answers.clear()
        taken = kubelet_search_of(node_info, plan).steps_taken(plan.request, steps)
        answer = _Answer(plan, result, taken, len(node_info.assumed))
        kept.answers[id(plan.demand), steps] = answer


def _new_search(
    node_info: NodeInfo, plan: Plan, hidden: RequestedAmounts = (), plays_again: bool = False
) -> KubeletSearch:
    if node_info.report is None:
        return KubeletSearch(TooManyStates(frozenset()), len(node_info.assumed))
    charges = tuple(node_info.charges())
    moment = Before(node_info.ledger, node_info.report, charges, 0)
    if plays_again:
        moment = as_before(node_info.ledger, node_info.report, charges) or moment
    states = kubelet_states(
        moment.node,
        moment.report,
        moment.charges,
        node_info.claims,
        plan.rule.policy,
        plan.rule.scope,
        plan.has_init_demand,
        hidden,
    )
    return KubeletSearch(states, len(node_info.assumed), moment.begun)


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
