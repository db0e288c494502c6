"""The one entry of filter, score and reservation: the allocation that a node gives a pod, or why it
gives none.
"""

from __future__ import annotations

from itertools import accumulate

from shared.domain.policies import BEST_EFFORT, NONE, SINGLE_NUMA_NODE, Policy
from shared.domain.refusal import Refusal
from shared.domain.zone_allocation import DeviceHolding
from shared.kubelet.masks import mask_of
from shared.owned import refusals
from shared.owned.allocate import Shortage, Trial, allocate, is_possible, trial_of
from shared.owned.device_choice import DevicesError, choose_devices, completed
from shared.owned.device_hints import device_hints_of
from shared.owned.devices import DeviceRequest, FreeDevices
from shared.owned.free import Free
from shared.owned.hints import (
    Hints,
    OfferedMask,
    hints_of,
    masks_of_width,
    offered,
    score_of_mask,
    zoned_width,
)
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
    node: OwnedNode,
    free: Free,
    request: OwnedRequest,
    devices: tuple[FreeDevices, DeviceRequest] | None = None,
    first_zone: int | None = None,
) -> Allocation | Refusal:
    """Return the allocation of a pod on a node, or a refusal.

    `free` is what the pods there leave (`shared.owned.free.free_of`), and `devices` the same for
    cards (`shared.owned.devices.free_devices_of`) with the cards that the pod asks for.
    Without cards, `first_zone` is taken before other single zones, whatever the node's strategy.
    """
    if devices is not None and not devices[1].amounts:
        devices = None
    if not any(request.amounts.values()) and devices is None:
        return Allocation(Holding())
    policy = combined_policy(node.policy, request.policy)
    if policy is None:
        return refusals.policy_mismatch(node, request)
    trial = trial_of(node, free, request)
    if isinstance(trial, Refusal):
        return trial
    try:
        return _admitted(trial, policy, devices, first_zone)
    except DevicesError as error:
        return refusals.no_devices(node, str(error))


def _admitted(
    trial: Trial,
    policy: Policy,
    devices: tuple[FreeDevices, DeviceRequest] | None,
    first_zone: int | None,
) -> Allocation | Refusal:
    """Return the allocation or a refusal. Raises DevicesError."""
    merged: Merged | None = Merged(None, preferred=True)
    zones = trial.free.zones
    if policy != NONE:
        if not zones:
            return refusals.no_zones(trial.node, policy)
        merged = one_zone(trial, policy, first_zone) if devices is None else None
        merged = merged or merged_hint(trial, policy, devices)
    if merged is None:
        return _unaligned(trial, policy)
    mask = merged.mask
    if mask is None and policy != NONE and len(zones) == 1:
        mask = mask_of(zones)
    holding = allocate(trial, mask)
    if isinstance(holding, Shortage):
        return _short(trial, holding, policy, (mask or 0).bit_count())
    is_set = trial.machine is not None
    return Allocation(
        holding,
        merged.mask,
        policy,
        trial.bind if is_set else "",
        is_set and trial.bind_is_required,
        merged.preferred,
        merged.score,
        () if devices is None else _chosen(*devices, merged.mask),
    )


def _chosen(
    free: FreeDevices, request: DeviceRequest, mask: int | None
) -> tuple[DeviceHolding, ...]:
    chosen = choose_devices(free, request, mask, is_scored=True)
    return tuple(completed(free.devices[card.type][card.minor], card) for card in chosen)


def _short(trial: Trial, shortage: Shortage, policy: Policy, width: int) -> Refusal:
    if shortage.is_of_ids:
        return refusals.too_few_cpus(trial.node, trial.request, trial.usable)
    resource = shortage.resource
    return refusals.insufficient(trial.node, trial.free, trial.request, resource, policy, width)


def one_zone(trial: Trial, policy: Policy, first_zone: int | None = None) -> Merged | None:
    """Return `merged_hint`, the reference, without other providers if the pod fits one zone and the
    narrowest masks are by what is free; else None. `first_zone` wins, without a score, if the pod
    fits it.
    """
    free, request, best = trial.free, trial.request, None
    zoned = sum([name in free.listed for name in request.amounts])
    if trial.node.preferred != "free" or not zoned or 0 in request.amounts.values():
        return None
    zones = _zones_of(trial)
    for zone in sorted(free.zones, key=lambda zone: zone != first_zone):
        mask = 1 << zone
        if is_possible(trial, mask) and zones.keeps_apart(mask):
            score = 0 if zone == first_zone else zoned * score_of_mask(trial, mask)
            if best is None or score > best.score:
                best = Merged(mask, True, score=score, is_admitted=True)
            if zone == first_zone:
                break
    if best is not None and policy == SINGLE_NUMA_NODE and best.mask == zones.every:
        return Merged(None, True, is_admitted=True)
    return best


def _zones_of(trial: Trial) -> Zones:
    free = trial.free
    return Zones(mask_of(free.zones), free.use, exclusive_of(trial.request))


def merged_hint(
    trial: Trial, policy: Policy, devices: tuple[FreeDevices, DeviceRequest] | None = None
) -> Merged | None:
    """Return the merged hint; None if a strict policy admits none. Masks are tried by width, from
    the narrowest that has enough free until a preferred one is found.
    """
    free, zones = trial.free, _zones_of(trial)
    masks: list[OfferedMask] = []
    hints: Hints = hints_of(trial, masks, policy)
    others = [device_hints_of(*devices, only_narrowest=True)] if devices is not None else []
    widest = 1 if policy == SINGLE_NUMA_NODE else len(free.zones)
    for width in range(_narrowest(trial), widest + 1):
        masks += offered(trial, masks_of_width(free.zones, width))
        hints = hints_of(trial, masks, policy)
        merged = aligned(policy, (hints, *others), zones)
        if merged is not None:
            return merged
    if policy != BEST_EFFORT:
        return None
    others = [device_hints_of(*devices)] if devices is not None else []
    return merge(policy, (hints, *others), zones)


def _narrowest(trial: Trial) -> int:
    """Return the smallest number of zones that together have enough free of each resource; one more
    than all zones if they have not.
    """
    zones, width = trial.free.zones, 1
    for resource, asked in trial.request.amounts.items():
        if zoned_width(trial, resource):
            sizes = sorted((trial.amounts[zone].get(resource, 0) for zone in zones), reverse=True)
            sums = accumulate(sizes)
            enough = (count for count, total in enumerate(sums, 1) if total >= asked)
            width = max(width, next(enough, len(zones) + 1))
    return width


def exclusive_of(request: OwnedRequest) -> ZoneExclusive:
    """Return the pod's singleNUMANodeExclusive; `Required` if the pod states only a policy."""
    if request.zone_exclusive or request.policy in (None, NONE):
        return request.zone_exclusive
    return REQUIRED


def _unaligned(trial: Trial, policy: Policy) -> Refusal:
    """Return the reason: the first resource that is insufficient in as many zones as the policy
    allows, or else the shortage if all resources must come from the same zones.
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
