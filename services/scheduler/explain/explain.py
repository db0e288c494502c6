"""Why no node, or one node, takes a pod: one line for the Kubernetes Event, and full refusals with
the resource that falls short, what each zone has, which pods hold it, and the remedy.

A refusal is found in the order of `Reason`: constraints, node resources, then zones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from services.scheduler.explain.alignment_refusal import (
    alignment_refusal,
    larger_than_zones,
)
from services.scheduler.explain.refusal_table import EVICTION_MAY_HELP, RefusalTable
from services.scheduler.explain.remedies import remedy
from services.scheduler.explain.shortages import put_shortages
from services.scheduler.explain.undecided import of_refusal
from services.scheduler.explain.wording import best_zone, headline, line, within
from services.scheduler.filter.constraints.predicates import constraint_refusal, resource_refusal
from services.scheduler.filter.constraints.registry import PodChecks
from services.scheduler.filter.topology.fit import blocked, leaves_open, may_fit, obstacle, plan_for
from services.scheduler.filter.topology.kubelet_search import steps_taken
from services.scheduler.owned.admission import allocate
from services.scheduler.select.cluster import Cluster
from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.node_arrays import Slots
from services.scheduler.snapshot.node_info import NodeInfo
from services.scheduler.snapshot.pod_class import BY_KUBELET, Plan, PodClass
from services.scheduler.snapshot.result import Unplaceable
from shared.domain.pod import Pod
from shared.domain.refusal import HOLDERS_NAMED, Reason, Refusal, ZoneState
from shared.domain.report import Report

# From so many changed nodes on, the array form of their refusals costs less.
SHORTAGES_FROM = 32


def refused_everywhere(pod_class: PodClass, pod: Pod) -> Unplaceable:
    """Return the reason why a pod fits no node of any cluster: it is invalid, or has a constraint
    that Topolog does not implement.
    """
    refusal = _pod_refusal(pod_class, pod, "")
    assert refusal is not None
    text = headline(refusal)
    return Unplaceable(text, {text: 1}, (_as_json(refusal),))


def _pod_refusal(pod_class: PodClass, pod: Pod, node: str) -> Refusal | None:
    """Return the refusal that depends on the pod alone; None if nodes decide."""
    if pod_class.problem:
        return Refusal(
            node, Reason.INVALID_POD, pod_class.problem, remedy="correct the pod's manifest"
        )
    if pod.constraints.unsupported:
        fields = ", ".join(pod.constraints.unsupported)
        remedy = (
            "remove it, or have kube-scheduler place such pods, with Topolog as its extender "
            "(docs/extender.md)"
        )
        return Refusal(node, Reason.UNSUPPORTED, fields, remedy=remedy)
    return None


def unplaceable(
    cluster: Cluster, pod_class: PodClass, checks: PodChecks, last_message: str = ""
) -> Unplaceable:
    """Count the nodes by reason, and give full refusals of the nodes that come nearest, unless
    `last_message` begins with the message: details cost several times as much as the rest.

    The result is cached for the pod class until a node changes. A pod with own checks (`checks`)
    has no cached result, because they depend on other pods.
    """
    cached, changes = pod_class.unplaceable, cluster.evaluator.cache.changes
    if cached is not None and cached[0] == changes and not checks:
        return cached[1]
    result = _unplaceable(cluster, pod_class, checks, last_message)
    if not checks and result.has_detail:
        pod_class.unplaceable = changes, result
    return result


def _unplaceable(
    cluster: Cluster, pod_class: PodClass, checks: PodChecks, last_message: str
) -> Unplaceable:
    slots, refusals = cluster.slots_by_name(), _Refusals(cluster, pod_class, checks)
    table = refusals.table()
    nearest = [refusals.of(slot) for slot in table.nearest(slots, cluster.config.near_misses)]

    def best(phrase: str) -> str:
        entry = table.best(slots, phrase)
        if entry is None:
            return ""
        node_info = cluster.evaluator.node_at(entry.slot)
        return best_zone(entry.resource, entry.amount, node_info.name, entry.zone)

    counts, may_help = table.counts(slots), table.may_help(slots)
    message = line(len(cluster), counts, best, _bounds(cluster, pod_class, nearest))
    if last_message.startswith(message):
        return Unplaceable(message, counts, (), len(cluster), may_help, has_detail=False)
    detail = tuple(
        _as_json(_detailed(cluster, cluster.node(refusal.node), pod_class, refusal))
        for refusal in nearest
    )
    return Unplaceable(message, counts, detail, len(cluster), may_help)


def _bounds(
    cluster: Cluster, pod_class: PodClass, nearest: Sequence[Refusal]
) -> dict[str, set[str]]:
    """Return by phrase the open questions of the nearest nodes.

    The other nodes may be thousands. They add little, because refusals that depend on the state of
    the kubelet rank as nearest.
    """
    undecided: dict[str, set[str]] = {}
    for refusal in nearest:
        names = bounds_of(cluster, cluster.node(refusal.node), pod_class, refusal)
        undecided.setdefault(headline(refusal), set()).update(names)
    return undecided


def bounds_of(
    cluster: Cluster, node_info: NodeInfo | None, pod_class: PodClass, refusal: Refusal
) -> tuple[str, ...]:
    """Return the open questions about the node's kubelet, if the refusal may depend on it."""
    if node_info is None:
        return ()
    return of_refusal(refusal, node_info, plan_for(pod_class, node_info.profile, cluster.config))


class _Refusals:
    """The refusals of all nodes for one pod. The searches take at most the steps that a decision
    about the pod may take.
    """

    def __init__(self, cluster: Cluster, pod_class: PodClass, checks: PodChecks) -> None:
        self._cluster, self._pod_class, self._checks = cluster, pod_class, checks
        self._most_undecided = cluster.config.steps_pod // cluster.config.steps_node
        # Refusals of this pod that are not those of its class.
        self._own = dict[int, Refusal | None]()

    def table(self) -> RefusalTable:
        """Return the table of this pod."""
        slots = self._refused_by_class()
        table = self._table_of_class(slots)
        if table is None:
            return self._plain_table()
        undecided = table.with_reason(slots, Reason.BRANCH_LIMIT)
        return table.with_refusals(self._own | self._by_last_resort(undecided))

    def of(self, slot: int) -> Refusal:
        """Return the refusal in one slot of the table."""
        refusal = self._own.get(slot)
        if refusal is None:
            refusal = self._of_class(slot, self._cluster.config.steps_node)
        assert refusal is not None
        return refusal

    def _refused_by_class(self) -> Slots:
        """Return the nodes that the pod's own checks do not refuse."""
        slots, passing = self._cluster.slots_by_name(), self._checks.passing()
        if passing is None:
            return slots
        for slot in slots[~passing[slots]].tolist():
            self._own[slot] = self._checks.refusal(self._cluster.evaluator.node_at(slot))
        return slots[passing[slots]]

    def _table_of_class(self, slots: Slots) -> RefusalTable | None:
        """Return the table of the pod's class, which is current in these slots; None if the
        searches of too many nodes end without an answer.
        """
        cluster, pod_class, cache = self._cluster, self._pod_class, self._cluster.evaluator.cache
        if pod_class.refusal_table is None:
            pod_class.refusal_table = RefusalTable()
        table: RefusalTable = pod_class.refusal_table
        table.note_changes(cache.changes, cache.changed_at)
        stale = slots[table.stale[slots]]
        if len(stale) >= SHORTAGES_FROM:
            put_shortages(cluster, pod_class, table, stale)
            stale = stale[table.stale[stale]]
        undecided = len(table.with_reason(slots, Reason.BRANCH_LIMIT))
        for slot in stale.tolist():
            if undecided >= self._most_undecided:
                break
            refusal = self._of_class(slot, cluster.config.steps_node)
            undecided += refusal is not None and refusal.reason == Reason.BRANCH_LIMIT
            table.put(slot, refusal)
        return table if undecided < self._most_undecided else None

    def _plain_table(self) -> RefusalTable:
        """Return the same table, asking one node after the other."""
        undecided = list[int]()
        for slot in self._cluster.slots_by_name().tolist():
            if slot not in self._own:
                is_left = len(undecided) < self._most_undecided
                steps = self._cluster.config.steps_node if is_left else 0
                refusal = self._own[slot] = self._of_class(slot, steps)
                if refusal is not None and refusal.reason == Reason.BRANCH_LIMIT:
                    undecided.append(slot)
        self._by_last_resort(undecided)
        return RefusalTable.of(self._cluster.evaluator.cache.size, self._own)

    def _of_class(self, slot: int, steps: int) -> Refusal | None:
        node_info = self._cluster.evaluator.node_at(slot)
        return cached_refusal(self._cluster, node_info, self._pod_class, steps)

    def _by_last_resort(self, undecided: Iterable[int]) -> dict[int, Refusal | None]:
        """Search undecided nodes again with the larger budget per node, until the pod's budget is
        used up. None is a node that takes the pod after all.
        """
        cluster, pod_class, config = self._cluster, self._pod_class, self._cluster.config
        nodes, steps_left = map(cluster.evaluator.node_at, undecided), config.steps_pod
        for node_info in cluster.evaluator.easiest_first(pod_class, nodes):
            if steps_left <= 0:
                break
            steps = config.steps_last_resort
            self._own[node_info.slot] = _refusal_of(node_info, pod_class, config, steps)
            plan = plan_for(pod_class, node_info.profile, config)
            steps_left -= steps_taken(node_info, plan, steps)
        return self._own


def cached_refusal(
    cluster: Cluster, node_info: NodeInfo, pod_class: PodClass, steps: int
) -> Refusal | None:
    """Return the node's refusal. It is computed once for each version of the node."""
    version, observed = (node_info.version, steps), node_info.observed
    cached = pod_class.refusals.get(node_info.name)
    if cached is not None and cached[0] == version and cached[1] is observed:
        return cached[2]
    refusal = _refusal_of(node_info, pod_class, cluster.config, steps)
    if refusal is not None:
        pod_class.refusals[node_info.name] = version, observed, refusal
    return refusal


def node_refusal(cluster: Cluster, pod: Pod, pod_class: PodClass, node: str) -> Refusal | None:
    """Return the full refusal of one node; None if it takes the pod."""
    pod_refusal = _pod_refusal(pod_class, pod, node)
    if pod_refusal is not None:
        return pod_refusal
    node_info = cluster.node(node)
    if node_info is None:
        return Refusal(
            node, Reason.UNKNOWN_NODE, remedy="check the node's name with `kubectl get nodes`"
        )
    claimed = cluster.claimed_by(pod.uid)
    node_info = claimed if claimed is not None and claimed.name == node else node_info
    refusal = cluster.checks(pod).refusal(node_info) or _refusal_of(
        node_info, pod_class, cluster.config, cluster.config.steps_last_resort
    )
    return _detailed(cluster, node_info, pod_class, refusal) if refusal is not None else None


def _refusal_of(
    node_info: NodeInfo, pod_class: PodClass, config: CycleConfig, steps: int
) -> Refusal | None:
    """Return the first reason, in the order of `Reason`, why this node cannot take the pod class.
    `steps` limits the search.

    One exception to the order: if the node is full now, and the request is larger than every empty
    zone, the second reason is given, because no end of a pod helps.
    """
    refusal = constraint_refusal(pod_class.pod.constraints, node_info.observed, node_info.name)
    if refusal is not None:
        return refusal
    plan = plan_for(pod_class, node_info.profile, config)
    short = resource_refusal(pod_class.request, node_info)
    barred = blocked(pod_class, node_info.profile, plan, config)
    if short is not None:
        fits_empty_node = node_info.allocatable.get(short.resource, 0) >= short.asked
        never = None
        if barred is None and fits_empty_node:
            never = larger_than_zones(node_info, plan)
        return _with_rule(never, plan) if never is not None else short
    if barred is not None:
        return _with_rule(barred[0].refusal(node_info.name, barred[1]), plan)
    if plan.mode == "free":
        return None
    if plan.mode == "owned":
        answer = allocate(node_info, plan)
        return _with_rule(answer, plan) if isinstance(answer, Refusal) else None
    refusal = alignment_refusal(node_info, pod_class, plan, config, steps)
    return _with_rule(refusal, plan) if refusal is not None else None


def _with_rule(refusal: Refusal, plan: Plan) -> Refusal:
    """Add the policy and scope that were applied, and their source."""
    rule = plan.rule
    return msgspec.structs.replace(
        refusal, policy=rule.policy, scope=rule.scope, policy_source=rule.source
    )


def _detailed(
    cluster: Cluster, node_info: NodeInfo | None, pod_class: PodClass, refusal: Refusal
) -> Refusal:
    """Add the remedy, what is undecided, and the state of the zones."""

    def filter_pod(smaller: PodClass) -> Refusal | None:
        assert node_info is not None
        return _refusal_of(node_info, smaller, cluster.config, cluster.config.steps_node)

    text = remedy(refusal, node_info, pod_class.pod, filter_pod)
    if node_info is not None:
        plan = plan_for(pod_class, node_info.profile, cluster.config)
        text += within(of_refusal(refusal, node_info, plan))
        if refusal.reason in EVICTION_MAY_HELP:
            lacks_zone_resource = (
                bool(refusal.resource)
                and refusal.reason != Reason.NODE_RESOURCE
                and plan.mode in BY_KUBELET
            )
            text += _preemption_note(node_info, plan, lacks_zone_resource)
    refusal = msgspec.structs.replace(refusal, remedy=text, best=max(0, refusal.best))
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


def _preemption_note(node_info: NodeInfo, plan: Plan, lacks_zone_resource: bool) -> str:
    """Return why preemption skips the node; "" if the node itself does not prevent it."""
    reason = obstacle(node_info)
    if reason:
        return f"; preemption skipped: {reason}"
    if lacks_zone_resource and may_fit(node_info, plan) and leaves_open(node_info, plan):
        return "; preemption skipped until the node's next report, because the pod may fit already"
    return ""


def _zone_state(node_info: NodeInfo, report: Report, zone: int, resource: str) -> ZoneState:
    allocatable = 0
    for reported in report.zones:
        if reported.id == zone and resource in reported.resources:
            allocatable = reported.resources[resource].allocatable
    free_min = node_info.free_min[zone].get(resource, 0)
    free_max = node_info.free_max.get(zone, {}).get(resource, 0)
    holders = _holders(node_info, zone, resource)
    more = max(0, len(holders) - HOLDERS_NAMED)
    return ZoneState(zone, free_min, free_max, allocatable, holders[:HOLDERS_NAMED], more)


def _holders(node_info: NodeInfo, zone: int, resource: str) -> tuple[str, ...]:
    """Return the uids of pods that hold or may hold the resource there, or are nominated for it."""
    holders = [
        charge.uid
        for charge in node_info.charges()
        if charge.zones.get(zone, {}).get(resource)
        or charge.confirmed_zones.get(zone, {}).get(resource)
    ]
    nominees = [uid for uid, claim in node_info.claims.items() if claim.get(zone, {}).get(resource)]
    return tuple(sorted([*holders, *nominees]))


def _as_json(refusal: Refusal) -> dict[str, object]:
    fields: dict[str, object] = msgspec.to_builtins(refusal)
    return fields
