"""The one entry of filter, score and reservation: the allocation that a node gives a pod, or why it
gives none.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from shared.domain.policies import BEST_EFFORT, NONE, SINGLE_NUMA_NODE, Policy
from shared.domain.refusal import Refusal
from shared.kubelet.masks import mask_of
from shared.owned import refusals
from shared.owned.allocate import Shortage, Trial, allocate, trial_of
from shared.owned.free import Free
from shared.owned.hints import Hints, OfferedMask, hints_of, offered, zoned_width
from shared.owned.merge import Merged, Zones, aligned, merge
from shared.owned.policy import combined_policy
from shared.owned.values import (
    REQUIRED,
    Allocation,
    Holding,
    OwnedNode,
    OwnedRequest,
    ZoneExclusive,
)


def admit(
    node: OwnedNode, free: Free, request: OwnedRequest, others: Sequence[Hints | None] = ()
) -> Allocation | Refusal:
    """Return the allocation of a pod on a node, or a refusal.

    `free` is what the pods there leave (`shared.owned.free.free_of`). `others` are the hints of
    other providers, that is, of devices.
    """
    if not any(request.amounts.values()):
        return Allocation(Holding())
    policy = combined_policy(node.policy, request.policy)
    if policy is None:
        return refusals.policy_mismatch(node, request)
    trial = trial_of(node, free, request)
    if isinstance(trial, Refusal):
        return trial
    if policy == NONE:
        return _allocation(trial, Merged(None, preferred=True), None, policy)
    if not free.zones:
        return refusals.no_zones(node, policy)
    merged = _merged(trial, policy, others)
    if merged is None:
        return _unaligned(trial, policy)
    only_zone = mask_of(free.zones) if len(free.zones) == 1 else None
    return _allocation(trial, merged, only_zone if merged.mask is None else merged.mask, policy)


def _allocation(
    trial: Trial, merged: Merged, mask: int | None, policy: Policy
) -> Allocation | Refusal:
    holding = allocate(trial, mask)
    if isinstance(holding, Shortage):
        return _short(trial, holding, policy, (mask or 0).bit_count())
    bind = trial.bind if trial.machine is not None else ""
    required = bool(bind) and trial.bind_is_required
    preferred, score = merged.preferred, merged.score
    return Allocation(holding, merged.mask, policy, bind, required, preferred, score)


def _short(trial: Trial, shortage: Shortage, policy: Policy, width: int) -> Refusal:
    if shortage.is_of_ids:
        return refusals.too_few_cpus(trial.node, trial.request, trial.usable)
    resource = shortage.resource
    return refusals.insufficient(trial.node, trial.free, trial.request, resource, policy, width)


def _merged(trial: Trial, policy: Policy, others: Sequence[Hints | None]) -> Merged | None:
    """Return the merged hint; None if a strict policy admits none. Masks are tried by width, until
    a preferred one is found.
    """
    free = trial.free
    zones = Zones(mask_of(free.zones), free.use, exclusive_of(trial.request))
    masks: list[OfferedMask] = []
    hints: Hints = {}
    widest = 1 if policy == SINGLE_NUMA_NODE else len(free.zones)
    for width in range(1, widest + 1):
        masks += offered(trial, map(mask_of, combinations(free.zones, width)))
        hints = hints_of(trial, masks, policy)
        merged = aligned(policy, (hints, *others), zones)
        if merged is not None:
            return merged
    return merge(policy, (hints, *others), zones) if policy == BEST_EFFORT else None


def exclusive_of(request: OwnedRequest) -> ZoneExclusive:
    """Return how far the pod is kept apart: `Required` if it states a policy and nothing else."""
    if request.zone_exclusive or request.policy in (None, NONE):
        return request.zone_exclusive
    return REQUIRED


def _unaligned(trial: Trial, policy: Policy) -> Refusal:
    """Refuse the pod for the first resource that falls short in the zones that the policy lets it
    take, or else for what falls short if all are taken together.
    """
    node, free, request = trial.node, trial.free, trial.request
    for resource, asked in request.amounts.items():
        if zoned_width(trial, resource):
            width = 1 if policy == SINGLE_NUMA_NODE else zoned_width(trial, resource)
            sizes = sorted(trial.amounts[zone].get(resource, 0) for zone in free.zones)
            if sum(sizes[-width:]) < asked:
                return refusals.insufficient(node, free, request, resource, policy, width)
    widest = [1 << zone for zone in free.zones]
    if policy != SINGLE_NUMA_NODE:
        widest = [mask_of(free.zones)]
    results = [allocate(trial, mask) for mask in widest]
    short = [result for result in results if isinstance(result, Shortage)]
    if len(short) < len(widest):
        return refusals.not_apart(node, free, request, policy)
    return _short(trial, short[0], policy, len(free.zones))
