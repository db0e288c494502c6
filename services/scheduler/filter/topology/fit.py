"""What keeps a whole profile of nodes from a shape, before any amount is compared: report, policy,
zones.

Does this node surely admit the pod, and does nobody on the way there lose by it? Bounds ahead,
hints and merge behind.

Where a bound answers, no kubelet need be imagined. Otherwise the hint providers are asked over
every state that the ledger and the report allow, in every order of arrival, within a budget of
steps. Must not know scores or other nodes.

Patience: what a pod may wait for on a node, as it may have room there already, or as nobody
could tell what an eviction frees.

The optimistic bound must refuse, and where amounts do not bound, the hint providers in every state:
pessimism is no reason to kill. Must not know victims, priorities or other nodes.
"""

from __future__ import annotations

from copy import copy
from itertools import islice
from typing import NamedTuple

from services.scheduler.filter.topology import bounds
from services.scheduler.filter.topology.bounds import possible
from services.scheduler.filter.topology.kubelet_search import kubelet_search_of
from services.scheduler.filter.topology.pigeonhole import Waiting, joined, waiting_on
from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.node_info import NodeInfo, Profile
from services.scheduler.snapshot.pod_class import Plan, PodClass
from services.scheduler.snapshot.zone_sizes import is_plain
from shared.domain.demand import peak
from shared.domain.policies import BEST_EFFORT, SINGLE_NUMA_NODE
from shared.domain.refusal import Reason
from shared.domain.report import Report
from shared.domain.resources import memory_of
from shared.hints.admission_orders import UNKNOWN, SearchResult
from shared.hints.registry import amounts_are_all, beyond_amounts
from shared.hints.request import request_of
from shared.ledger.kubelet_states import OTHER_KUBELET
from shared.ledger.state import LedgerNode
from shared.ledger.view import subtract
from shared.ledger.what_if import newcomer

_STATES = {"missing": Reason.NO_REPORT, "expired": Reason.REPORT_EXPIRED}


def plan_for(pod_class: PodClass, profile: Profile, config: CycleConfig) -> Plan:
    """The shape's plan; nothing is aligned on a node that may be used without a report."""
    if profile[0] and config.on_missing_report == "pass":
        return Plan("free", profile[1])
    return pod_class.plan(profile)


def blocked(
    pod_class: PodClass, profile: Profile, plan: Plan, config: CycleConfig
) -> tuple[Reason, str] | None:
    """The reason and its subject, None when the amounts decide."""
    state = profile[0]
    if state and pod_class.zonal and config.on_missing_report == "refuse":
        return _STATES.get(state, Reason.REPORT_MALFORMED), "" if state in _STATES else state
    if plan.rule.problem and (pod_class.wanted or plan.mode != "free"):
        return (
            Reason.POLICY_UNKNOWN if profile[1].problem else Reason.POLICY_MISMATCH
        ), plan.rule.problem
    if plan.mode != "free" and not profile[4]:
        return Reason.NO_ZONES, ""
    return None


ADMITTED: SearchResult = "admitted"
REFUSED: SearchResult = "refused"
ENDANGERS: SearchResult = "endangers"


def verdict(
    node_info: NodeInfo, pod_class: PodClass, plan: Plan, config: CycleConfig, steps: int
) -> SearchResult:
    """The answer for a pod of this shape, whose plan is not `free`."""
    unknown_cores = (
        plan.whole_cores and node_info.report is not None and node_info.report.cpus is None
    )
    if unknown_cores and not bounds.whole_cores_left(node_info, plan, config.threads_per_core):
        return REFUSED
    if plan.one_by_one:
        return (
            ADMITTED
            if plan.may_be_split and surely(node_info, pod_class, plan)
            else searched(node_info, plan, steps)
        )
    if unknown_cores:
        if surely(node_info, pod_class, plan):
            return ADMITTED
    elif not plan.whole_cores and surely(node_info, pod_class, plan):
        return ADMITTED
    if not bounds.possible(node_info, plan):
        return REFUSED
    return searched(node_info, plan, steps)


def surely(node_info: NodeInfo, pod_class: PodClass, plan: Plan) -> bool:
    """Sufficient and cheap; False says nothing. Nothing is sure beside pods on their way of which
    amounts do not tell where they find a place."""
    if node_info.report is None or _some_go_beyond_amounts(node_info):
        return False
    if node_info.unaligned:
        charge = newcomer(
            pod_class.pod, pod_class.kind, node_info.report, node_info.free_max
        ).charge
        arriving = [each for each in node_info.charges() if each.uid in node_info.pending]
        return bounds.enough_on_the_whole(
            node_info, plan, charge, arriving
        ) or _all_in_single_zones(node_info, plan)
    if not bounds.one_zone_each(node_info, plan):
        return False
    alone = not node_info.pending
    if bounds.each_finds_a_zone(node_info, plan) and (
        alone or _harmless(node_info, pod_class, plan)
    ):
        return True
    return node_info.unconfirmed and _everybody_finds_a_zone(node_info, plan, node_info.report)


def _some_go_beyond_amounts(node_info: NodeInfo) -> bool:
    """Does a pod whose zones are not known ask a provider that looks at more than amounts?"""
    if amounts_are_all() or not node_info.unconfirmed:
        return False
    unproven = (charge for charge in node_info.charges() if charge.zones and not charge.confirmed)
    return any(
        beyond_amounts(name)
        for charge in unproven
        for part in charge.demand
        for name in part.amounts
    )


def _everybody_finds_a_zone(node_info: NodeInfo, plan: Plan, report: Report) -> bool:
    """Counted: those on their way, and the newcomer."""
    waiting = None if plan.whole_cores else waiting_beside(node_info)
    return waiting is not None and waiting.leave_room_for(
        plan.demand, plan.rule.policy, plan.rule.scope, report
    )


def _all_in_single_zones(node_info: NodeInfo, plan: Plan) -> bool:
    """best-effort never refuses for a mask: where everybody surely finds a zone that holds all of a
    part, each takes the lowest such zone, as under single-numa-node, and nothing ever lies over
    several. Not where an end or an earlier group of zones may have had somebody placed otherwise.
    """
    report = node_info.report
    if plan.rule.policy != BEST_EFFORT or node_info.grouped_zones or report is None:
        return False
    if node_info.ledger.ended or node_info.ledger.freed or not is_plain(report):
        return False
    if not node_info.unconfirmed and not node_info.pending:
        return bounds.together(node_info, plan)
    return _everybody_finds_a_zone(node_info, plan, report)


def _harmless(node_info: NodeInfo, pod_class: PodClass, plan: Plan) -> bool:
    """Nobody on the way can miss what the newcomer takes, whatever they ask for."""
    if plan.whole_cores or (
        node_info.grouped_zones
        and node_info.rule.policy != SINGLE_NUMA_NODE
        and memory_of(plan.together)
    ):
        return False
    charge = newcomer(pod_class.pod, pod_class.kind, node_info.report, node_info.free_max).charge
    if bounds.room_beside_all(node_info, charge):
        return True
    if node_info.grouped_zones:
        return False
    return bounds.everyone_keeps_a_zone(
        node_info, [each for each in node_info.charges() if each.uid in node_info.pending], charge
    )


class Counted(NamedTuple):
    """Those on their way, as long as the ledger's node and its groups of zones stay; `own` counts
    own reservations among them.
    """

    ledger: LedgerNode
    grouped_zones: frozenset[int]
    own: int
    waiting: Waiting | None


def waiting_beside(node_info: NodeInfo) -> Waiting | None:
    """Those on their way, counted; own reservations that came since are counted beside."""
    kept: Counted | None = node_info.waiting
    report, own = node_info.report, len(node_info.assumed)
    if report is None:
        return None
    if (
        kept is None
        or kept.ledger is not node_info.ledger
        or kept.grouped_zones != node_info.grouped_zones
        or kept.own > own
    ):
        kept = Counted(
            node_info.ledger, node_info.grouped_zones, own, waiting_on(node_info, report)
        )
    for each in islice(node_info.assumed.values(), kept.own, None):
        kept = kept._replace(
            waiting=joined(kept.waiting, each.charge, node_info, report)
            if kept.waiting is not None
            else None
        )
    node_info.waiting = kept = kept._replace(own=own)
    return kept.waiting


# -- the search
# --------------------------------------------------------------------------------------------------------


def searched(node_info: NodeInfo, plan: Plan, steps: int) -> SearchResult:
    """By hints and merge over every consistent state."""
    if steps <= 0:
        return UNKNOWN
    return kubelet_search_of(node_info, plan).verdict(request_of(plan.demand), steps)


MOST_STEPS = 256
"""Admissions that are looked at for one node."""
NAMED = 3
"""Pods that one obstacle names."""


def may_fit(node_info: NodeInfo, plan: Plan) -> bool:
    """Could some state that the bounds allow take the pod?"""
    if not plan.one_by_one and not possible(_hopeful(node_info), plan):
        return False
    return not is_known(node_info, plan) or searched(node_info, plan, MOST_STEPS) == ADMITTED


def leaves_open(node_info: NodeInfo, plan: Plan) -> bool:
    """Is more than one state possible, pods on their way left aside?"""
    return node_info.free_min != _hopeful(node_info).free_max or (
        plan.one_by_one and not is_known(node_info, plan)
    )


def is_known(node_info: NodeInfo, plan: Plan) -> bool:
    """By the providers' states; of a kubelet of another version as if it were of this one."""
    states = kubelet_search_of(node_info, plan).states
    return states is not None and states.bounds <= {OTHER_KUBELET} and not states.pending


def obstacle(node_info: NodeInfo) -> str:
    """Why nobody is evicted from this node, whoever asks and whoever stands there; empty where
    somebody may be.
    """
    if not node_info.ledger.charges:
        return ""
    if node_info.ledger.report is None:
        return "it has not reported yet: what is free there is not known"
    if node_info.ledger.listed is None:
        return "its reports carry no placements: what an eviction frees there is not known"
    anywhere = sorted(
        c.key
        for c in node_info.ledger.charges.values()
        if len(c.zones) > 1 and not (c.confirmed or c.confirmed_zones)
    )
    if not anywhere:
        return ""
    more = f" and {len(anywhere) - NAMED} more" if len(anywhere) > NAMED else ""
    return f"no report shows the zone of {', '.join(anywhere[:NAMED])}{more} yet"


def _hopeful(node_info: NodeInfo) -> NodeInfo:
    """The node at best: what pods on their way will hold for sure is no room, nor are nominees'
    claims.
    """
    hopeful = copy(node_info)
    hopeful.free_max = {zone: dict(amounts) for zone, amounts in node_info.free_max.items()}
    for charge in node_info.ledger.charges.values():
        if len(charge.zones) == 1 and not charge.confirmed:
            surely = peak([part for part in charge.demand if part.kind != "init"])
            subtract(hopeful.free_max, dict.fromkeys(charge.zones, surely))
    for claim in node_info.claims.values():
        subtract(hopeful.free_max, claim)
    return hopeful
