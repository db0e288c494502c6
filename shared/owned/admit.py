"""The one entry of filter, score and reservation: the allocation that a node gives a pod, or why it
gives none.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from typing import TypeVar, cast

from shared.domain.policies import BEST_EFFORT, NONE, SINGLE_NUMA_NODE, Policy
from shared.domain.refusal import Refusal
from shared.domain.zone_allocation import DeviceHolding
from shared.kubelet.masks import mask_of
from shared.owned import refusals
from shared.owned.allocate import Shortage, Trial, allocate, is_possible, trial_of
from shared.owned.device_choice import (
    DeviceNeeds,
    DevicesError,
    choose_devices,
    completed,
    needs_of,
)
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

# Most answers about devices that are kept for one state of them.
MOST_ANSWERS = 256
_Answer = TypeVar("_Answer")


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
    cards: Hints | None = None
    if policy != NONE:
        if not zones:
            return refusals.no_zones(trial.node, policy)
        cards = None if devices is None else _narrowest_of_cards(*devices)
        merged = one_zone(trial, policy, first_zone, cards)
        merged = merged or merged_hint(trial, policy, devices, cards)
    if merged is None:
        return _unaligned(trial, policy, cards or {})
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


def _needs(free: FreeDevices, request: DeviceRequest) -> DeviceNeeds:
    return _answered(free, request, "needs", lambda: needs_of(free, request))


def _narrowest_of_cards(free: FreeDevices, request: DeviceRequest) -> Hints:
    def hints() -> Hints:
        return device_hints_of(free, request, only_narrowest=True, needs=_needs(free, request))

    return _answered(free, request, "hints", hints)


def _chosen(
    free: FreeDevices, request: DeviceRequest, mask: int | None
) -> tuple[DeviceHolding, ...]:
    def chosen() -> tuple[DeviceHolding, ...]:
        return choose_devices(free, request, mask, is_scored=True, needs=_needs(free, request))

    cards = _answered(free, request, mask, chosen)
    return tuple([completed(free.devices[card.type][card.minor], card) for card in cards])


def _answered(
    free: FreeDevices, request: DeviceRequest, question: object, answer: Callable[[], _Answer]
) -> _Answer:
    """Return the answer, which is kept with the free devices. Raises DevicesError."""
    kept = free.answers.get((id(request), question))
    if kept is None:
        try:
            kept = request, answer(), ""
        except DevicesError as error:
            kept = request, None, str(error)
        if len(free.answers) >= MOST_ANSWERS:
            free.answers.clear()
        # The request is kept with its answer, so that no other gets its id.
        free.answers[id(request), question] = kept
    if kept[2]:
        raise DevicesError(kept[2])
    return cast("_Answer", kept[1])


def _short(trial: Trial, shortage: Shortage, policy: Policy, width: int) -> Refusal:
    if shortage.is_of_ids:
        return refusals.too_few_cpus(trial.node, trial.request, trial.usable)
    resource = shortage.resource
    return refusals.insufficient(trial.node, trial.free, trial.request, resource, policy, width)


def one_zone(
    trial: Trial, policy: Policy, first_zone: int | None = None, cards: Hints | None = None
) -> Merged | None:
    """Return `merged_hint`, the reference, if the pod fits one zone and the narrowest masks are by
    what is free; else None. `cards` are the hints of devices. Without them `first_zone` wins,
    without a score, if the pod fits it.
    """
    free, request, best = trial.free, trial.request, None
    zoned = sum([name in free.listed for name in request.amounts])
    if trial.node.preferred != "free" or not zoned or 0 in request.amounts.values():
        return None
    by_cards = _scores_by_cards(cards) if cards else None
    first_zone = None if cards is not None else first_zone
    zones = _zones_of(trial)
    for zone in sorted(free.zones, key=lambda zone: zone != first_zone):
        mask = 1 << zone
        if by_cards is not None and mask not in by_cards:
            continue
        if is_possible(trial, mask) and zones.keeps_apart(mask):
            score = 0 if zone == first_zone else zoned * score_of_mask(trial, mask)
            score += by_cards[mask] if by_cards is not None else 0
            if best is None or score > best.score:
                best = Merged(mask, True, score=score, is_admitted=True)
            if zone == first_zone:
                break
    if best is not None and policy == SINGLE_NUMA_NODE and best.mask == zones.every:
        return Merged(None, True, is_admitted=True)
    return best


def _scores_by_cards(cards: Hints) -> dict[int, int]:
    """Return the scores of the preferred masks of devices, summed over their types."""
    listed = [hint for hints in cards.values() for hint in hints or () if hint.preferred]
    scores = dict.fromkeys([hint.mask or 0 for hint in listed], 0)
    for hint in listed:
        scores[hint.mask or 0] += hint.score
    return scores


def _zones_of(trial: Trial) -> Zones:
    free = trial.free
    return Zones(mask_of(free.zones), free.use, exclusive_of(trial.request))


def merged_hint(
    trial: Trial,
    policy: Policy,
    devices: tuple[FreeDevices, DeviceRequest] | None = None,
    cards: Hints | None = None,
) -> Merged | None:
    """Return the merged hint; None if a strict policy admits none. Masks are tried by width, from
    the narrowest that has enough free until a preferred one is found. `cards` are the narrowest
    hints of devices: strict policies try only theirs, because every mask is preferred that has room
    for the pod under restricted, and every single zone.
    """
    free, zones = trial.free, _zones_of(trial)
    masks: list[OfferedMask] = []
    hints: Hints = hints_of(trial, masks, policy)
    widest = 1 if policy == SINGLE_NUMA_NODE else len(free.zones)
    is_bound = policy != BEST_EFFORT and trial.node.preferred == "free"
    by_cards = _scores_by_cards(cards) if cards and is_bound else None
    for width in range(_narrowest(trial), widest + 1):
        tried = masks_of_width(free.zones, width)
        if by_cards is not None:
            tried = (mask for mask in by_cards if mask.bit_count() == width)
        masks += offered(trial, tried)
        hints = hints_of(trial, masks, policy)
        merged = aligned(policy, (hints, cards), zones)
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


def _unaligned(trial: Trial, policy: Policy, cards: Hints) -> Refusal:
    """Return the reason: the first resource that is insufficient in as many zones as the policy
    allows, or else the devices that no zone has, or else the shortage if all resources must come
    from the same zones. `cards` are the narrowest hints of devices.
    """
    node, free, request = trial.node, trial.free, trial.request
    for resource, asked in request.amounts.items():
        if zoned_width(trial, resource):
            width = 1 if policy == SINGLE_NUMA_NODE else zoned_width(trial, resource)
            sizes = sorted(trial.amounts[zone].get(resource, 0) for zone in free.zones)
            if sum(sizes[-width:]) < asked:
                return refusals.insufficient(node, free, request, resource, policy, width)
    for kind, hints in cards.items() if policy == SINGLE_NUMA_NODE else ():
        if hints and all((hint.mask or 0).bit_count() > 1 for hint in hints):
            return refusals.not_in_one_zone(node, kind)
    widest = [1 << zone for zone in free.zones]
    if policy != SINGLE_NUMA_NODE:
        widest = [mask_of(free.zones)]
    results = [allocate(trial, mask) for mask in widest]
    short = [result for result in results if isinstance(result, Shortage)]
    if len(short) < len(widest):
        return refusals.not_apart(node, free, policy)
    return _short(trial, short[0], policy, len(free.zones))
