"""Nodes on which a booking gives its room to a pod. Owners use their bookings before other nodes.

The node is filtered as if the booking were gone, next to what would remain of it. If Topolog
chooses the node's zones, the zones of the booking are tried first, and all others only if its
policy is Aligned.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from services.scheduler.filter.constraints.registry import PodChecks
from services.scheduler.score.ranks import RULED_OUT
from services.scheduler.select.cluster import Cluster
from services.scheduler.snapshot.node_info import NodeInfo
from services.scheduler.snapshot.pod_class import PodClass
from shared.domain.booking import less
from shared.domain.pod import Pod
from shared.domain.resources import Amounts
from shared.ledger.alike import kind_of
from shared.ledger.state import LedgerPod
from shared.ledger.what_if import newcomer


def booked_node(
    cluster: Cluster, pod: Pod, pod_class: PodClass, checks: PodChecks
) -> tuple[NodeInfo, int, str] | None:
    """Return the best node of the pod's bookings, as it is without the booking, with its rank and
    the uid of the booking. Of equal ones the oldest booking comes first.
    """
    best: tuple[NodeInfo, int, str] | None = None
    for uid, entry in cluster.bookings.items():
        node_info = cluster.node(entry.node)
        if entry.booking is None or node_info is None or not entry.booking.terms.is_for(pod):
            continue
        if uid not in node_info.ledger.charges or checks.refusal(node_info) is not None:
            continue
        for freed in _without(cluster, node_info, entry, pod, pod_class):
            rank = cluster.evaluator.evaluate_harder(pod_class, freed)
            if rank != RULED_OUT:
                best = best if best is not None and best[1] >= rank else (freed, rank, uid)
                break
    return best


def _without(
    cluster: Cluster, node_info: NodeInfo, entry: LedgerPod, pod: Pod, pod_class: PodClass
) -> Iterator[NodeInfo]:
    """Yield the node as the pod may use it, the narrower choice first."""
    booking, uid = entry.booking, entry.pod.uid
    assert booking is not None
    has, asked, names = kind_of(entry.pod).request, pod_class.request, kind_of(booking.pod).request
    is_aligned = booking.terms.policy == "Aligned"
    if not is_aligned and any(asked.get(name, 0) > has.get(name, 0) for name in names):
        return
    rest = less(entry.pod, asked)
    remaining = newcomer(rest, kind_of(rest), node_info.report, node_info.free_max)
    remaining.charge.booked = True
    zones = entry.allocation.zones if entry.allocation is not None else {}
    has_zones = node_info.profile.owners.is_owned and entry.allocation is not None
    newcomers = () if has_zones else (remaining,)

    def freed() -> NodeInfo:
        return node_info.hypothetical((uid,), {uid: entry}, pod.uid, cluster.config, newcomers)

    if not has_zones:
        yield freed()
        return
    narrow = freed()
    state = narrow.owned_state()
    amounts: dict[int, Amounts] = {
        zone: {
            name: min(amount, zones.get(zone, {}).get(name, 0)) if name in names else amount
            for name, amount in free.items()
        }
        for zone, free in state.free.amounts.items()
    }
    free = msgspec.structs.replace(state.free, amounts=amounts)
    in_zones = {zone: {**state.zones[zone], **rest_there} for zone, rest_there in amounts.items()}
    narrow.owned = msgspec.structs.replace(state, free=free, zones=in_zones, answers={})
    yield narrow
    if is_aligned:
        yield freed()
