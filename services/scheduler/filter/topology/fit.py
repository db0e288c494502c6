"""Whether a node admits the pod, and no pending pod loses its zone to it.

1. `blocked` compares no amounts: report, policy and zones of the node's profile.
2. `filter_result` compares bounds first. If they do not decide, the kubelet search asks the hint
   providers in every state that ledger and report allow, in every order of admission, within a
   budget of steps.
3. `may_fit` is for preemption: if some state could admit the pod, it is too early to evict for it.

Must not know scores or other nodes.
"""

from __future__ import annotations

from copy import copy
from itertools import islice
from typing import NamedTuple

from services.scheduler.filter.constraints.constraint import RefusalReason
from services.scheduler.filter.constraints.scheduler_keys import NOT_KEPT
from services.scheduler.filter.topology import bounds
from services.scheduler.filter.topology.kubelet_search import (
    known_answer,
    kubelet_search_of,
    note_answer,
)
from services.scheduler.filter.topology.pigeonhole import PendingParts, joined, pending_parts_on
from services.scheduler.owned.admission import allocate
from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.node_info import NodeInfo, Profile
from services.scheduler.snapshot.owners import is_owned_resource
from services.scheduler.snapshot.pod_class import Plan, PodClass
from shared.domain import pod_level
from shared.domain.demand import peak
from shared.domain.policies import BEST_EFFORT, SINGLE_NUMA_NODE
from shared.domain.refusal import Reason, Refusal
from shared.domain.resources import memory_of
from shared.hints.admission_orders import UNKNOWN, SearchResult
from shared.hints.registry import amounts_are_all, beyond_amounts
from shared.ledger.kubelet_states import OTHER_KUBELET
from shared.ledger.state import Charge, LedgerNode
from shared.ledger.view import subtract
from shared.ledger.what_if import newcomer, newcomer_zones

ADMITTED: SearchResult = "admitted"
REFUSED: SearchResult = "refused"
ENDANGERS: SearchResult = "endangers"

# The most admissions that are tried to decide whether a pod may fit one node.
MOST_STEPS = 256
# The most pods that one obstacle names.
NAMED = 3

NO_REPORT = RefusalReason(
    name=Reason.NO_REPORT,
    phrase="node(s) had no topology report",
    remedy="run the exporter on the node, or set on_missing_report: pass",
)
EXPIRED = RefusalReason(
    name=Reason.REPORT_EXPIRED,
    phrase="node(s) had an expired topology report",
    remedy="see why the node's exporter does not report",
)
MALFORMED = RefusalReason(
    name=Reason.REPORT_MALFORMED,
    phrase="node(s) had a malformed topology report: %s",
    remedy="correct what publishes the node's topology",
)
POLICY_UNKNOWN = RefusalReason(
    name=Reason.POLICY_UNKNOWN,
    phrase="node(s) had an unknown topology policy: %s",
    remedy="set it to none, best-effort, restricted or single-numa-node",
)
POLICY_MISMATCH = RefusalReason(
    name=Reason.POLICY_MISMATCH,
    phrase="node(s) had a different topology policy: %s",
    remedy="change the pod's annotation, or use nodes of that policy",
)
NO_ZONES = RefusalReason(
    name=Reason.NO_ZONES,
    phrase="node(s) had no NUMA zones",
    remedy="see why the exporter finds no NUMA nodes there",
)
NOTHING_PINNED = RefusalReason(
    name=Reason.ONE_ZONE,
    phrase="node(s) had a kubelet that pins nothing of the pod to a NUMA zone, and %s wants one",
    remedy="request whole CPUs with requests equal to limits, and use nodes with cpuManagerPolicy "
    "static; or remove the pod's topology policy",
)
NOBODY_CHOOSES = RefusalReason(
    name=Reason.ONE_ZONE,
    phrase="node(s) had a topology policy that nothing on the node keeps: %s",
    remedy="run topolog-agent or koordlet on the node, set the kubelet's managers to static, or "
    "remove the policy",
)
NOT_IN_ONE_ZONE = RefusalReason(
    name=Reason.ONE_ZONE,
    phrase="node(s) were not certain to put the pod into one NUMA zone: %s",
    remedy="use nodes with topologyManagerPolicy single-numa-node",
)
UNLISTED = RefusalReason(
    name=Reason.UNLISTED,
    phrase="node(s) had a topology report without %s, which the kubelet may pin to zones",
    remedy="remove the resource from the exporter's resourceExclude; or, if no kubelet pins it to "
    "zones, add it to TOPOLOG_CYCLE_UNPINNED",
)
POD_LEVEL_MANAGERS = RefusalReason(
    name=Reason.FEATURE,
    phrase="node(s) had a kubelet with PodLevelResourceManagers on: %s",
    remedy="use nodes with that feature gate off, or set resources of containers only",
)
REASONS = (
    NO_REPORT,
    EXPIRED,
    MALFORMED,
    POLICY_UNKNOWN,
    POLICY_MISMATCH,
    NO_ZONES,
    NOTHING_PINNED,
    NOBODY_CHOOSES,
    NOT_IN_ONE_ZONE,
    UNLISTED,
    POD_LEVEL_MANAGERS,
)


# -- the profile


def plan_for(pod_class: PodClass, profile: Profile, config: CycleConfig) -> Plan:
    """Return the class's plan; nothing is aligned on a node that may be used without a report."""
    if profile.state and config.on_missing_report == "pass":
        return Plan("free", profile.rule)
    return pod_class.plan(profile)


def blocked(
    pod_class: PodClass, profile: Profile, plan: Plan, config: CycleConfig
) -> tuple[RefusalReason, str] | None:
    """Return why no node of the profile takes the class, and the reason's subject; None if the
    amounts decide.
    """
    state, own_policy = profile.state, pod_class.own_policy
    is_refused = pod_class.zonal and config.on_missing_report == "refuse"
    if state and (is_refused or own_policy.one_zone):
        if state == "missing":
            return NO_REPORT, ""
        return (EXPIRED, "") if state == "expired" else (MALFORMED, state)
    if plan.rule.problem and (own_policy.policy or plan.mode != "free"):
        reason = POLICY_UNKNOWN if profile.rule.problem else POLICY_MISMATCH
        return reason, plan.rule.problem
    if plan.mode != "free" and not profile.layout:
        return NO_ZONES, ""
    if scope := profile.pod_level_scope:
        text = pod_level.refusal(pod_class.pod, scope, profile.tracked)
        if text:
            return POD_LEVEL_MANAGERS, text
    if plan.mode == "free" and own_policy.one_zone and len(profile.layout) > 1:
        return NOTHING_PINNED, own_policy.wanted_by
    is_unkept = plan.mode == "free" and plan.rule.one_zone and profile.owners.cpu == "nobody"
    if is_unkept and any(map(is_owned_resource, pod_class.asked)):
        return NOBODY_CHOOSES, profile.owners.reason
    for resource in profile.unlisted:
        if pod_class.kind.demand((resource,)):
            return UNLISTED, resource
    for resource, label in profile.unkept:
        if pod_class.kind.demand((resource,)):
            return NOT_KEPT, label
    return None


# -- the filter result


def filter_result(
    node_info: NodeInfo,
    pod_class: PodClass,
    plan: Plan,
    config: CycleConfig,
    steps: int,
    finds_zones: bool = False,
    first_zone: int | None = None,
) -> SearchResult:
    """Return the answer for a pod of this class under a plan that is not `free`. `finds_zones` says
    that `each_finds_a_zone` is known to be true. `first_zone` only decides the allocation.
    """
    if plan.mode == "owned":
        allocation = allocate(node_info, plan, first_zone)
        return REFUSED if isinstance(allocation, Refusal) else ADMITTED
    if node_info.kubelet_searches is not None:
        answer = known_answer(node_info, plan, steps)
        if answer is not None:
            return answer
    answer = _filter_result(node_info, pod_class, plan, config, steps, finds_zones)
    if node_info.kubelet_searches is not None:
        note_answer(node_info, plan, steps, answer)
    return answer


def _filter_result(
    node_info: NodeInfo,
    pod_class: PodClass,
    plan: Plan,
    config: CycleConfig,
    steps: int,
    finds_zones: bool,
) -> SearchResult:
    report = node_info.report
    cores_unknown = plan.full_pcpus_only and report is not None and report.cpus is None
    if cores_unknown and not bounds.has_whole_cores(node_info, plan, config.threads_per_core):
        return REFUSED
    if plan.needs_search:
        if plan.may_be_split and is_sure(node_info, pod_class, plan):
            return ADMITTED
        return search_result(node_info, plan, steps)
    if node_info.kubelet_searches is not None:
        # A search that the node has already costs less than any bound, and decides most nodes that
        # a pod meets in vain.
        search = kubelet_search_of(node_info, plan)
        if search.refuses_when_full(plan.request, only_if_plain=True):
            return REFUSED
    is_bounded = (cores_unknown or not plan.full_pcpus_only) and _amounts_decide(node_info)
    if is_bounded and _takes_no_zone(node_info, pod_class, plan, finds_zones):
        return ADMITTED
    # Once an aligned node has a search, that costs less than to count the parts of pending pods.
    counts = is_bounded and (node_info.unaligned or node_info.kubelet_searches is None)
    if counts and _every_pod_finds_a_zone(node_info, plan, by_counting=not node_info.unaligned):
        return ADMITTED
    if not bounds.possible(node_info, plan):
        return REFUSED
    search = kubelet_search_of(node_info, plan)
    if search.refuses_when_full(plan.request):
        return REFUSED
    # On a plain form the search costs less than the bound on parts of pending pods.
    answer = search.result(plan.request, steps) if search.is_plain(plan.request) else UNKNOWN
    if answer != UNKNOWN:
        return answer
    if is_bounded and _every_pod_finds_a_zone(node_info, plan):
        return ADMITTED
    return search.result(plan.request, steps)


def search_result(node_info: NodeInfo, plan: Plan, steps: int) -> SearchResult:
    """Return the answer of the kubelet search within this many steps."""
    search = kubelet_search_of(node_info, plan)
    if search.refuses_when_full(plan.request):
        return REFUSED
    return search.result(plan.request, steps)


def is_sure(node_info: NodeInfo, pod_class: PodClass, plan: Plan) -> bool:
    """Return True if bounds prove that the node takes the pod: sufficient and cheap. They prove
    nothing next to pending pods whose zones do not follow from amounts.
    """
    return _amounts_decide(node_info) and (
        _takes_no_zone(node_info, pod_class, plan) or _every_pod_finds_a_zone(node_info, plan)
    )


def _takes_no_zone(
    node_info: NodeInfo, pod_class: PodClass, plan: Plan, finds_zones: bool = False
) -> bool:
    """Return whether amounts prove that the pod finds its zones, and takes none from a pending
    pod.
    """
    if node_info.unaligned:
        if not bounds.may_be_enough(node_info, plan):
            return False
        pod, kind = pod_class.pod, pod_class.kind
        charge = newcomer(pod, kind, node_info.report, node_info.free_max).charge
        return bounds.enough_on_the_node(node_info, plan, charge, _pending(node_info))
    if not bounds.one_zone_each(node_info, plan):
        return False
    if not (finds_zones or bounds.each_finds_a_zone(node_info, plan)):
        return False
    return not node_info.pending or _is_harmless(node_info, pod_class, plan)


def _pending(node_info: NodeInfo) -> list[Charge]:
    pending = set(node_info.pending)
    return [charge for charge in node_info.charges() if charge.uid in pending]


def _amounts_decide(node_info: NodeInfo) -> bool:
    """Return whether amounts decide the zones of unconfirmed pods: none of them must be in one
    zone, or uses a provider that looks at more.
    """
    if node_info.report is None or not node_info.unconfirmed:
        return node_info.report is not None
    unconfirmed = [charge for charge in node_info.charges() if not charge.confirmed]
    if any(charge.one_zone for charge in unconfirmed):
        return False
    return amounts_are_all() or not any(
        beyond_amounts(name)
        for charge in unconfirmed
        if charge.zones
        for part in charge.demand
        for name in part.amounts
    )


def _is_harmless(node_info: NodeInfo, pod_class: PodClass, plan: Plan) -> bool:
    """Return whether every pending pod keeps its place in any zones that the new pod takes."""
    if plan.full_pcpus_only:
        return False
    memory_in_groups = node_info.grouped_zones and node_info.rule.policy != SINGLE_NUMA_NODE
    if memory_in_groups and memory_of(plan.sum_of_parts):
        return False
    taken = newcomer_zones(pod_class.kind, node_info.report, node_info.free_max)
    if bounds.room_for_all(node_info, taken):
        return True
    if node_info.grouped_zones:
        return False
    return bounds.each_pending_pod_keeps_a_zone(node_info, _pending(node_info), taken)


def _every_pod_finds_a_zone(node_info: NodeInfo, plan: Plan, by_counting: bool = False) -> bool:
    """Return whether every pod certainly finds single zones, in any order; with `by_counting`,
    whether that follows from the numbers of their parts.
    """
    report = node_info.report
    if report is None:
        return False
    if node_info.unaligned:
        if not _may_be_all_in_single_zones(node_info, plan):
            return False
        if not node_info.unconfirmed and not node_info.pending:
            return bounds.one_zone_holds_all(node_info, plan)
    # If memory is not listed, the zones of pending pods do not follow from amounts.
    elif report.unlisted or not (node_info.unconfirmed and bounds.one_zone_each(node_info, plan)):
        return False
    parts = None if plan.full_pcpus_only else pending_parts_of(node_info)
    return parts is not None and parts.leave_room_for(
        plan.demand,
        plan.rule.policy,
        plan.rule.scope,
        report,
        node_info.profile.between,
        by_counting,
    )


def _may_be_all_in_single_zones(node_info: NodeInfo, plan: Plan) -> bool:
    """Return whether every pod of a best-effort node is in single zones if it finds them.
    best-effort never refuses a pod for a mask: a part for which some zone certainly has room takes
    the lowest such zone, as under single-numa-node. This does not hold if an ended pod, or an
    earlier group of zones, may have led a pod elsewhere.
    """
    if plan.rule.policy != BEST_EFFORT or node_info.grouped_zones:
        return False
    return not (node_info.ledger.ended or node_info.ledger.freed) and node_info.is_plain()


class CountedParts(NamedTuple):
    """Pending parts as long as the ledger's node and its groups of zones stay; `assumed` counts
    the assumed pods among them.
    """

    ledger: LedgerNode
    grouped_zones: frozenset[int]
    assumed: int
    parts: PendingParts | None


def pending_parts_of(node_info: NodeInfo) -> PendingParts | None:
    """Return the parts of pending pods; pods assumed since the last call are added."""
    counted: CountedParts | None = node_info.pending_parts
    report, assumed = node_info.report, len(node_info.assumed)
    if report is None:
        return None
    if (
        counted is None
        or counted.ledger is not node_info.ledger
        or counted.grouped_zones != node_info.grouped_zones
        or counted.assumed > assumed
    ):
        parts = pending_parts_on(node_info, report)
    else:
        parts = counted.parts
        for newcomer_ in islice(node_info.assumed.values(), counted.assumed, None):
            if parts is not None:
                parts = joined(parts, newcomer_.charge, node_info, report)
    node_info.pending_parts = CountedParts(
        node_info.ledger, node_info.grouped_zones, assumed, parts
    )
    return parts


# -- what may still fit


def may_fit(node_info: NodeInfo, plan: Plan) -> bool:
    """Return whether some possible state could take the pod. Pessimism is no reason to evict."""
    if not plan.needs_search and not (
        bounds.possible(node_info, plan) and bounds.possible(_at_best(node_info), plan)
    ):
        return False
    return not is_known(node_info, plan) or search_result(node_info, plan, MOST_STEPS) == ADMITTED


def leaves_open(node_info: NodeInfo, plan: Plan) -> bool:
    """Return whether more than one state is possible, apart from pending pods."""
    return node_info.free_min != _at_best(node_info).free_max or (
        plan.needs_search and not is_known(node_info, plan)
    )


def is_known(node_info: NodeInfo, plan: Plan) -> bool:
    """Return whether the providers know the node's state. A kubelet of another version counts as
    this one.
    """
    states = kubelet_search_of(node_info, plan).states
    return states is not None and states.bounds <= {OTHER_KUBELET} and not states.pending


def obstacle(node_info: NodeInfo) -> str:
    """Return why no pod may be evicted from this node; empty if pods may be."""
    charges = node_info.ledger.charges
    if not charges:
        return ""
    if node_info.ledger.report is None:
        return "it has not reported yet: what is free there is not known"
    if node_info.ledger.listed is None:
        return "its reports carry no placements: what an eviction frees there is not known"
    anywhere = sorted(
        charge.key
        for charge in charges.values()
        if len(charge.zones) > 1
        and not (charge.confirmed or charge.confirmed_zones or charge.booked)
    )
    if not anywhere:
        return ""
    more = f" and {len(anywhere) - NAMED} more" if len(anywhere) > NAMED else ""
    return f"no report shows the zone of {', '.join(anywhere[:NAMED])}{more} yet"


def _at_best(node_info: NodeInfo) -> NodeInfo:
    """Return the node with the amounts that are free at most: less what pending pods hold in any
    case, and without the claims of nominated pods.
    """
    at_best = copy(node_info)
    at_best.free_max = {zone: dict(amounts) for zone, amounts in node_info.free_max.items()}
    for charge in node_info.ledger.charges.values():
        if len(charge.zones) == 1 and not charge.confirmed:
            surely = peak([part for part in charge.demand if part.kind != "init"])
            subtract(at_best.free_max, dict.fromkeys(charge.zones, surely))
    for claim in node_info.claims.values():
        subtract(at_best.free_max, claim)
    return at_best
