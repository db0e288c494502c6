"""The node that is held for an overdue pod: the node on which it likely waits the shortest time.

1. A node is held only if it would take the pod without the other pods, by the same filter as every
   decision. Static pods, and pods of the system's priorities, do not end.
2. How long other pods run is not known. The node that lacks least is held: of each resource the
   share of the request that is not free, in the zones that lack least, or on the whole node if that
   lacks more. Of equal nodes the one with the fewest pods.

The kubelet chooses a pod's zones, so that no pod can be kept out of one zone: whole nodes are held.
Must not know a clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import NamedTuple

from services.scheduler.filter.constraints.predicates import constraint_refusal
from services.scheduler.filter.constraints.registry import PodChecks
from services.scheduler.score.ranks import RULED_OUT
from services.scheduler.select.cluster import Cluster
from services.scheduler.snapshot.node_info import NodeInfo
from services.scheduler.snapshot.pod_class import PodClass
from shared.domain.pod import Pod
from shared.domain.resources import PODS, Amounts
from shared.ledger.state import LedgerPod

Pods = Mapping[str, LedgerPod]

# How many of the nodes that lack least are filtered.
MOST_TRIED = 16
# The unit of what a node lacks, which is a share of the request.
ALL = 1 << 20
# Pods of this priority and above run on every node, or keep the cluster alive
# (system-cluster-critical).
SYSTEM_PRIORITY = 2_000_000_000


class NodeToHold(NamedTuple):
    """A node, and how many pods there must end at most."""

    node: str
    must_end: int


def node_to_hold(
    cluster: Cluster, pod: Pod, pod_class: PodClass, checks: PodChecks, pods: Pods
) -> NodeToHold | None:
    """Return the node to hold for the pod, None if no node would take it."""
    candidates = []
    for node_info in cluster.nodes():
        if node_info.name in cluster.view.holds.by_node or not _is_allowed(pod, checks, node_info):
            continue
        lack = lacking(cluster, pod_class, node_info)
        if lack is not None:
            others = len(leaving(node_info, pods))
            candidates.append((lack, others, node_info.name, node_info))
    for _, others, name, node_info in sorted(candidates, key=lambda item: item[:3])[:MOST_TRIED]:
        if _takes_emptied(cluster, pod, pod_class, node_info, pods):
            return NodeToHold(name, others)
    return None


def may_hold(
    cluster: Cluster,
    pod: Pod,
    pod_class: PodClass,
    checks: PodChecks,
    node_info: NodeInfo,
    pods: Pods,
) -> bool:
    """Return whether the node would take the pod once the others have ended."""
    return _is_allowed(pod, checks, node_info) and _takes_emptied(
        cluster, pod, pod_class, node_info, pods
    )


def leaving(node_info: NodeInfo, pods: Pods) -> list[str]:
    """Return the pods of the node that will end some day, as far as that is known."""
    return [
        uid
        for uid in node_info.ledger.charges
        if (entry := pods.get(uid)) is not None
        and not (entry.static or entry.booking)
        and entry.pod.priority < SYSTEM_PRIORITY
    ]


def lacking(cluster: Cluster, pod_class: PodClass, node_info: NodeInfo) -> int | None:
    """Return how much of the request is not free, None if the node is too small for it."""
    allocatable = node_info.allocatable
    request = {
        name: amount
        for name, amount in pod_class.request.items()
        if name != PODS or name in allocatable
    }
    if any(allocatable.get(name, 0) < amount for name, amount in request.items()):
        return None
    free = {name: node_info.free(name) for name in request}
    lacks = [_lack(request, free)]
    plan, is_blocked = cluster.evaluator.plan(pod_class, node_info)
    if is_blocked:
        return None
    if plan.mode == "aligned":
        for part in plan.parts:
            lack = _lack_in_zones(part.amounts, node_info)
            if lack is None:
                return None
            lacks.append(lack)
    return max(lacks)


def _lack_in_zones(amounts: Amounts, node_info: NodeInfo) -> int | None:
    """Return the lack in one zone if one is large enough, else in the fewest zones, each resource
    by itself.
    """
    free = node_info.free_min
    alone = [
        _lack(amounts, free.get(zone, {}))
        for zone, size in node_info.sizes.items()
        if all(size.get(name, 0) >= amount for name, amount in amounts.items())
    ]
    if alone:
        return min(alone)
    freest: Amounts = {}
    for name, amount in amounts.items():
        width = _width(amount, [size.get(name, 0) for size in node_info.sizes.values()])
        if width is None:
            return None
        by_zone = sorted([max(0, zone.get(name, 0)) for zone in free.values()], reverse=True)
        freest[name] = sum(by_zone[:width])
    return _lack(amounts, freest)


def _width(amount: int, sizes: Iterable[int]) -> int | None:
    """Return how many of the largest zones hold the amount when they are empty."""
    for width, total in enumerate(accumulate(sorted(sizes, reverse=True)), 1):
        if total >= amount:
            return width
    return None


def _lack(amounts: Amounts, free: Amounts) -> int:
    return sum(
        max(0, amount - max(0, free.get(name, 0))) * ALL // amount
        for name, amount in amounts.items()
        if amount > 0
    )


def _is_allowed(pod: Pod, checks: PodChecks, node_info: NodeInfo) -> bool:
    if constraint_refusal(pod.constraints, node_info.observed, node_info.name) is not None:
        return False
    return checks.refusal(node_info) is None


def _takes_emptied(
    cluster: Cluster, pod: Pod, pod_class: PodClass, node_info: NodeInfo, pods: Pods
) -> bool:
    gone = frozenset(leaving(node_info, pods))
    emptied = node_info.hypothetical(gone, pods, pod.uid, cluster.config)
    return cluster.evaluator.evaluate_harder(pod_class, emptied) != RULED_OUT
