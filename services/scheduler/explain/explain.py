"""Refusals in full and in one line: which resource, which zone had how much, who holds it, what
would make the pod fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import nsmallest

import msgspec

from services.scheduler.explain.alignment_refusal import (
    alignment_refusal,
    larger_than_zones,
)
from services.scheduler.explain.remedies import remedy
from services.scheduler.explain.undecided import behind
from services.scheduler.explain.wording import grouped, headline, line, within
from services.scheduler.filter.constraints.predicates import constraint_refusal, resource_refusal
from services.scheduler.filter.constraints.registry import PodChecks
from services.scheduler.filter.topology.fit import blocked, leaves_open, may_fit, obstacle, plan_for
from services.scheduler.select.cluster import Cluster
from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.node_info import NodeInfo
from services.scheduler.snapshot.pod_class import Plan, PodClass
from services.scheduler.snapshot.result import Unplaceable
from shared.domain.pod import Pod
from shared.domain.refusal import Reason, Refusal, ZoneState
from shared.domain.report import Report

EVICTION_MAY_HELP = {
    Reason.NODE_RESOURCE,
    Reason.TOO_MANY_PODS,
    Reason.NO_SINGLE_ZONE,
    Reason.NO_ZONE_SET,
    Reason.TOO_LITTLE_FREE,
    Reason.NOT_ON_EVERY_BRANCH,
    Reason.BRANCH_LIMIT,
}
_ORDER: dict[str, float] = {reason: place for place, reason in enumerate(Reason)}
# A reason of a constraint's own comes after all constraints, before the node's resources.
_OWN_REASON = _ORDER[Reason.NODE_RESOURCE] - 0.5


def hopeless(pod_class: PodClass, pod: Pod) -> Unplaceable:
    """A pod that no node is asked for: invalid, or with constraints that Topolog does not
    implement.
    """
    refusal = _invalid(pod_class, pod, "")
    assert refusal is not None
    text = headline(refusal)
    return Unplaceable(text, {text: 1}, (_as_json(refusal),))


def _invalid(pod_class: PodClass, pod: Pod, node: str) -> Refusal | None:
    if pod_class.problem:
        return Refusal(
            node, Reason.INVALID_POD, pod_class.problem, remedy="correct the pod's manifest"
        )
    if pod.constraints.unsupported:
        fields = ", ".join(pod.constraints.unsupported)
        remedy = "remove it, or have kube-scheduler place such pods, with Topolog as its extender (docs/extender.md)"
        return Refusal(node, Reason.UNSUPPORTED, fields, remedy=remedy)
    return None


def unplaceable(cluster: Cluster, pod_class: PodClass, bars: PodChecks) -> Unplaceable:
    """Every node's reason, counted; the nearest misses in detail. Kept for the shape until a node
    changes.
    """
    known = pod_class.unplaceable
    if known is not None and known[0] == cluster.evaluator.cache.changes and not bars:
        return known[1]
    found = _unplaceable(cluster, pod_class, bars)
    if not bars:
        pod_class.unplaceable = cluster.evaluator.cache.changes, found
    return found


def _unplaceable(cluster: Cluster, pod_class: PodClass, bars: PodChecks) -> Unplaceable:
    refusals = _refusals(cluster, pod_class, bars)
    groups = grouped(refusals)
    counts = {text: len(groups[text]) for text in sorted(groups)}
    nearest = nsmallest(cluster.config.near_misses, refusals, key=_distance)
    detail = tuple(
        _as_json(_detailed(cluster, cluster.node(each.node), pod_class, each)) for each in nearest
    )
    message = line(len(cluster), groups, _bounds(cluster, pod_class, nearest))
    may_help = sum(refusal.reason in EVICTION_MAY_HELP for refusal in refusals)
    return Unplaceable(message, counts, detail, len(cluster), may_help)


def _bounds(
    cluster: Cluster, pod_class: PodClass, nearest: Sequence[Refusal]
) -> dict[str, set[str]]:
    """What is known within bounds only of the nearest misses, by the text that counts them. No
    other node is asked, as there may be thousands; a refusal that hangs on the kubelet's state is
    nearer than any other."""
    found: dict[str, set[str]] = {}
    for each in nearest:
        found.setdefault(headline(each), set()).update(
            bounds_of(cluster, cluster.node(each.node), pod_class, each)
        )
    return found


def bounds_of(
    cluster: Cluster, node_info: NodeInfo | None, pod_class: PodClass, refusal: Refusal
) -> tuple[str, ...]:
    """What is known within bounds only of a node that refuses, where another state of its kubelet
    might not.
    """
    return (
        behind(refusal, node_info, plan_for(pod_class, node_info.profile, cluster.config))
        if node_info is not None
        else ()
    )


def _refusals(cluster: Cluster, pod_class: PodClass, bars: PodChecks) -> list[Refusal]:
    """Every node's, by name, with no more searching than deciding itself may do."""
    config, undecided, found = cluster.config, list[NodeInfo](), dict[str, Refusal]()
    for node_info in cluster.nodes():
        steps = config.steps_node if len(undecided) < config.steps_pod // config.steps_node else 0
        each = bars.refusal(node_info) or remembered(cluster, node_info, pod_class, steps)
        if each is not None:
            found[node_info.name] = each
            undecided += [node_info] if each.reason == Reason.BRANCH_LIMIT else []
    harder = _by_last_resort(cluster, pod_class, undecided)
    return [each for each in (found | harder).values() if each is not None]


def _by_last_resort(
    cluster: Cluster, pod_class: PodClass, undecided: Sequence[NodeInfo]
) -> dict[str, Refusal | None]:
    """By the larger budget, as long as the pod's own lasts."""
    found, left = dict[str, Refusal | None](), cluster.config.steps_pod
    for node_info in cluster.evaluator.easiest_first(pod_class, undecided):
        if left <= 0:
            break
        found[node_info.name] = refusal_of(
            node_info, pod_class, cluster.config, cluster.config.steps_last_resort
        )
        left -= cluster.evaluator.steps_taken(pod_class, node_info)
    return found


def remembered(
    cluster: Cluster, node_info: NodeInfo, pod_class: PodClass, steps: int
) -> Refusal | None:
    """The node's refusal within so many steps, worked out once for as long as the node stands as it
    does.
    """
    known = pod_class.refusals.get(node_info.name)
    if (
        known is not None
        and known[0] == (node_info.version, steps)
        and known[1] is node_info.observed
    ):
        return known[2]
    found = refusal_of(node_info, pod_class, cluster.config, steps)
    if found is not None:
        pod_class.refusals[node_info.name] = (node_info.version, steps), node_info.observed, found
    return found


def verdict(cluster: Cluster, pod: Pod, pod_class: PodClass, node: str) -> Refusal | None:
    """One node, in full."""
    invalid = _invalid(pod_class, pod, node)
    if invalid is not None:
        return invalid
    node_info = cluster.node(node)
    if node_info is None:
        return Refusal(
            node, Reason.UNKNOWN_NODE, remedy="check the node's name with `kubectl get nodes`"
        )
    claimed = cluster.claimed_by(pod.uid)
    node_info = claimed if claimed is not None and claimed.name == node else node_info
    found = cluster.checks(pod).refusal(node_info) or refusal_of(
        node_info, pod_class, cluster.config, cluster.config.steps_last_resort
    )
    return _detailed(cluster, node_info, pod_class, found) if found is not None else None


def refusal_of(
    node_info: NodeInfo, pod_class: PodClass, config: CycleConfig, steps: int
) -> Refusal | None:
    """The first reason for which this node cannot take the shape, in the order of `Reason`; `steps`
    are for the search. What is too large for every zone is told before what is in use now: no end
    of a pod helps it."""
    found = constraint_refusal(pod_class.pod.constraints, node_info.observed, node_info.name)
    if found is not None:
        return found
    plan, short = (
        plan_for(pod_class, node_info.profile, config),
        resource_refusal(pod_class.request, node_info),
    )
    barred = blocked(pod_class, node_info.profile, plan, config)
    if short is not None:
        passes = barred is None and node_info.allocatable.get(short.resource, 0) >= short.asked
        never = larger_than_zones(node_info, plan) if passes else None
        return _ruled(never, plan) if never is not None else short
    if barred is not None:
        return _ruled(barred[0].refusal(node_info.name, barred[1]), plan)
    if plan.mode == "free":
        return None
    found = alignment_refusal(node_info, pod_class, plan, config, steps)
    return _ruled(found, plan) if found is not None else None


def _ruled(found: Refusal, plan: Plan) -> Refusal:
    rule = plan.rule
    return msgspec.structs.replace(
        found, policy=rule.policy, scope=rule.scope, policy_source=rule.source
    )


def _distance(refusal: Refusal) -> tuple[float, float, str]:
    """Later tests and smaller shortfalls are nearer."""
    short = 1 - refusal.best / refusal.asked if refusal.asked else 0.0
    return -_ORDER.get(refusal.reason, _OWN_REASON), short, refusal.node


def _detailed(
    cluster: Cluster, node_info: NodeInfo | None, pod_class: PodClass, refusal: Refusal
) -> Refusal:
    def filter_pod(smaller: PodClass) -> Refusal | None:
        assert node_info is not None
        return refusal_of(node_info, smaller, cluster.config, cluster.config.steps_node)

    helps = remedy(refusal, node_info, pod_class.pod, filter_pod)
    if node_info is not None:
        plan = plan_for(pod_class, node_info.profile, cluster.config)
        helps += within(behind(refusal, node_info, plan))
        zonal = (
            bool(refusal.resource)
            and refusal.reason != Reason.NODE_RESOURCE
            and plan.mode != "free"
        )
        helps += _preemption(node_info, plan, zonal) if refusal.reason in EVICTION_MAY_HELP else ""
    refusal = msgspec.structs.replace(refusal, remedy=helps, best=max(0, refusal.best))
    if (
        node_info is None
        or node_info.report is None
        or not any(refusal.resource in zone.resources for zone in node_info.report.zones)
    ):
        return refusal
    zones = tuple(
        _zone_state(node_info, node_info.report, zone, refusal.resource)
        for zone in node_info.zone_ids
    )
    return msgspec.structs.replace(refusal, zones=zones)


def _preemption(node_info: NodeInfo, plan: Plan, zonal: bool) -> str:
    """Why no priority would help there, as far as the node alone decides that."""
    why = obstacle(node_info)
    if why:
        return f"; nobody is evicted there, whatever the priority: {why}"
    waits = zonal and may_fit(node_info, plan) and leaves_open(node_info, plan)
    return (
        "; it may fit already: nobody is evicted before the node's next report tells"
        if waits
        else ""
    )


def _zone_state(node_info: NodeInfo, report: Report, zone: int, resource: str) -> ZoneState:
    allocatable = next(
        (
            z.resources[resource].allocatable
            for z in report.zones
            if z.id == zone and resource in z.resources
        ),
        0,
    )
    free, most = (
        node_info.free_min[zone].get(resource, 0),
        node_info.free_max.get(zone, {}).get(resource, 0),
    )
    return ZoneState(zone, free, most, allocatable, _holders(node_info, zone, resource))


def _holders(node_info: NodeInfo, zone: int, resource: str) -> tuple[str, ...]:
    holders = [
        charge.uid
        for charge in node_info.charges()
        if charge.zones.get(zone, {}).get(resource)
        or charge.confirmed_zones.get(zone, {}).get(resource)
    ]
    nominees = [uid for uid, claim in node_info.claims.items() if claim.get(zone, {}).get(resource)]
    return tuple(sorted([*holders, *nominees]))


def _as_json(refusal: Refusal) -> dict[str, object]:
    found: dict[str, object] = msgspec.to_builtins(refusal)
    return found
