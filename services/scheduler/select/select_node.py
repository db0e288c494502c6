"""Select a node for one pod: filter, score, choose. Assuming the pod there is the caller's.

0. A pod takes the room of its booking if that has enough (`booked_node`). The node is filtered as
   if the booking were gone, next to the rest of the booking. If Topolog chooses the node's zones,
   those of the booking are tried first, and all others only if its policy is Aligned.
1. `select_node` walks down the score cache from the best rank. Only nodes that come out on top and
   are not sure are evaluated singly, by the kubelet search if bounds do not decide.
2. Once as many searches used up their budget as a pod may have steps, bounds alone are asked, and
   nodes that they do not decide are passed over for this pod.
3. If no node remains, the nodes that the ordinary budget did not decide are evaluated once more
   with a larger one.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import xxhash

from services.scheduler.filter.constraints.registry import PodChecks
from services.scheduler.filter.topology.predict import predict_if_on
from services.scheduler.owned.admission import booked_nodes, zone_allocation
from services.scheduler.score.predicted_zones import predicted_gpus
from services.scheduler.score.ranks import CLOSER, OPTIMISTIC, RULED_OUT, score_of
from services.scheduler.select.cluster import Cluster
from services.scheduler.snapshot.node_arrays import ScoreOffsets
from services.scheduler.snapshot.node_info import NodeInfo
from services.scheduler.snapshot.pod_class import PodClass
from services.scheduler.snapshot.result import Placed
from shared.domain.pod import Pod

# After this many single evaluations, one of all unsure nodes is cheaper.
BULK_AFTER = 4


def select_node(
    cluster: Cluster, pod: Pod, pod_class: PodClass, checks: PodChecks
) -> Placed | None:
    """Return the best node for the pod, None if no node takes it. The caller explains why."""
    nominee = _nominated(cluster, pod, pod_class, checks)
    if nominee is not None:
        return nominee
    booked = booked_node(cluster, pod, pod_class, checks.allow)
    if booked is not None:
        return placed_in(cluster, pod_class, booked)
    evaluator = cluster.evaluator
    evaluator.evaluate_all_if_new(pod_class)
    best = _best(cluster, pod, pod_class, cluster.offsets(pod, checks))
    if best is not None:
        return placed_on(cluster, pod_class, *best)
    changes = evaluator.cache.changes
    if not checks and pod_class.refused_at == changes:
        return None
    harder = last_resort(cluster, pod_class, checks.allow)
    if harder is not None:
        return placed_on(cluster, pod_class, *harder, evaluator.cache.candidates(pod_class.row))
    if not checks:
        pod_class.refused_at = changes
    return None


def _best(
    cluster: Cluster, pod: Pod, pod_class: PodClass, offsets: ScoreOffsets | None
) -> tuple[NodeInfo, int, int] | None:
    """Return the best node, its rank, and how many nodes are not ruled out."""
    evaluator, cache = cluster.evaluator, cluster.evaluator.cache
    salt, row = salt_of(pod.uid), pod_class.row
    bulk_useless_at = RULED_OUT
    unsure, searches = 0, cluster.config.steps_pod // cluster.config.steps_node
    evaluator.rank_changed(pod_class)
    try:
        while True:
            slot, best, candidates = cache.best(row, salt, offsets)
            if best == RULED_OUT:
                return None
            candidates += evaluator.passed_over
            node_info, predicted_rank = evaluator.node_at(slot), OPTIMISTIC
            if cache.sure[row, slot] and (not node_info.pending or cache.exact[row, slot]):
                return node_info, best, candidates
            if not cache.sure[row, slot]:
                unsure += 1
                if unsure % BULK_AFTER == 0 and best != bulk_useless_at:
                    if evaluator.evaluate_unsure(pod_class, best):
                        continue
                    bulk_useless_at = best
                predicted_rank = evaluator.predict_rank(pod_class, node_info)
                if predicted_rank < best:
                    continue
            if searches <= 0:
                evaluator.evaluate_by_bounds(pod_class, node_info)
            elif evaluator.evaluate(pod_class, node_info, predicted_rank) == best:
                return node_info, best, candidates
            else:
                searches -= pod_class.undecided.get(slot) == node_info.ledger_version
    finally:
        evaluator.restore_passed_over(pod_class)


def last_resort(
    cluster: Cluster, pod_class: PodClass, is_allowed: Callable[[NodeInfo], bool]
) -> tuple[NodeInfo, int] | None:
    """Return the first allowed node that a larger budget decides for the pod, as long as the pod's
    own budget lasts.
    """
    evaluator, steps_left = cluster.evaluator, cluster.config.steps_pod
    for node_info in evaluator.undecided_nodes(pod_class):
        if steps_left <= 0:
            break
        if is_allowed(node_info):
            rank = evaluator.evaluate_harder(pod_class, node_info)
            if rank != RULED_OUT:
                return node_info, rank
            steps_left -= evaluator.steps_taken(pod_class, node_info)
    return None


def _nominated(cluster: Cluster, pod: Pod, pod_class: PodClass, checks: PodChecks) -> Placed | None:
    """Return the placement of a nominated pod on its node, None if its claim is not
    sufficient yet.
    """
    node_info = cluster.claimed_by(pod.uid)
    if node_info is None or checks.refusal(node_info) is not None:
        return None
    rank = cluster.evaluator.evaluate_harder(pod_class, node_info)
    if rank == RULED_OUT:
        return None
    candidates = cluster.evaluator.cache.candidates(pod_class.row)
    return placed_on(cluster, pod_class, node_info, rank, candidates)


def placed_on(
    cluster: Cluster, pod_class: PodClass, node_info: NodeInfo, rank: int, candidates: int
) -> Placed:
    """Return the placement on this node, with the zones that the kubelet will likely choose."""
    plan, _ = cluster.evaluator.plan(pod_class, node_info)
    version = node_info.ledger.report_version
    score = rank if 0 <= rank < CLOSER else score_of(rank)
    if plan.mode == "owned":
        first_zone = cluster.evaluator.first_zone(pod_class, plan, node_info)
        allocation = zone_allocation(node_info, plan, pod_class.pod, first_zone)
        placed = Placed(node_info.name, score, candidates, version, allocation=allocation)
        if allocation is None:
            return placed
        zones = dict.fromkeys(plan.names, tuple(allocation.zones))
        return msgspec.structs.replace(placed, predicted=zones, certain=True)
    sure = cluster.evaluator.sure_places(pod_class, node_info)
    predicted, certain = predict_if_on(node_info, plan, cluster.config, sure)
    return Placed(
        node_info.name,
        score,
        candidates,
        version,
        predicted,
        certain,
        one_zone=plan.rule.one_zone,
        predicted_gpus=predicted_gpus(node_info, plan, predicted) if plan.near else (),
    )


def salt_of(uid: str) -> int:
    """Return a pod's hash for breaking ties."""
    return xxhash.xxh3_64_intdigest(uid.encode())


Booked = tuple[NodeInfo, int, str]


def placed_in(cluster: Cluster, pod_class: PodClass, booked: Booked) -> Placed:
    """Return the placement in the room of a booking."""
    placed = placed_on(cluster, pod_class, booked[0], booked[1], 1)
    return msgspec.structs.replace(placed, booking=booked[2])


def booked_node(
    cluster: Cluster, pod: Pod, pod_class: PodClass, is_allowed: Callable[[NodeInfo], bool]
) -> Booked | None:
    """Return the best allowed node of the pod's bookings, as it is without the booking, with its
    rank and the uid of the booking. Of equal ones the oldest booking comes first.
    """
    best: Booked | None = None
    for entry in cluster.bookings_of(pod):
        uid, node_info = entry.pod.uid, cluster.node(entry.node)
        if node_info is None or uid not in node_info.ledger.charges or not is_allowed(node_info):
            continue
        for freed in booked_nodes(node_info, entry, pod_class, pod.uid, cluster.config):
            rank = cluster.evaluator.evaluate_harder(pod_class, freed)
            if rank != RULED_OUT:
                best = best if best is not None and best[1] >= rank else (freed, rank, uid)
                break
    return best
