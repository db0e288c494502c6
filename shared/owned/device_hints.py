"""Hints of devices: the masks of zones under which all devices of a pod can be chosen together.

The narrowest masks are preferred. Masks under which the pod gets the GPUs that it would get without
a mask score more than CPU and memory together can, so that GPUs decide. Source: Koordinator
a7a1b76b, plugins/deviceshare/topology_hint.go.
"""

from __future__ import annotations

from shared.domain.zone_allocation import DeviceHolding
from shared.kubelet.masks import mask_of, nodes_of
from shared.owned.device_choice import (
    DeviceNeeds,
    DevicesError,
    choose_devices,
    is_by_count,
    needs_of,
)
from shared.owned.devices import GPU, DeviceRequest, FreeDevices
from shared.owned.hints import Hint, masks_of_width

BEST_GPUS_SCORE = 500


def device_hints_of(
    free: FreeDevices,
    request: DeviceRequest,
    only_narrowest: bool = False,
    needs: DeviceNeeds | None = None,
) -> dict[str, list[Hint]]:
    """Return the hints by type; empty if no device has a zone. Raises DevicesError if the devices
    cannot be chosen under the mask of all zones. `only_narrowest` leaves out masks that are not
    preferred, except that of all zones.
    """
    zones, by_zone = free.layout.zones, free.layout.by_zone
    if free.every and any(None in by_zone.get(kind, {}) for kind in request.amounts):
        zones = nodes_of(free.every)
    if not zones:
        return {}
    needs, every = needs or needs_of(free, request), mask_of(zones)
    if _has_too_few(free, needs, every):
        raise DevicesError("Insufficient NUMA Scoped Devices")
    best = _gpus(choose_devices(free, request, every, is_scored=False, needs=needs))
    by_count, scores = is_by_count(free, request), dict[int, int]()
    for width in range(1, len(zones)):
        for mask in masks_of_width(zones, width):
            if _has_too_few(free, needs, mask) or not _has_room(free, needs, mask):
                continue
            chosen = best
            if not by_count:
                try:
                    cards = choose_devices(free, request, mask, is_scored=False, needs=needs)
                except DevicesError:
                    continue
                chosen = _gpus(cards)
            # Fewer zones leave the best choice, as long as it lies in them.
            is_best = chosen == best and not best & ~free.minors_in(GPU, mask)
            scores[mask] = BEST_GPUS_SCORE if is_best else 0
        if scores and only_narrowest:
            break
    scores[every] = BEST_GPUS_SCORE
    width = min(map(int.bit_count, scores))
    hints = [Hint(mask, mask.bit_count() == width, score) for mask, score in scores.items()]
    return dict.fromkeys(request.amounts, hints)


def _gpus(holdings: tuple[DeviceHolding, ...]) -> int:
    return mask_of(holding.minor for holding in holdings if holding.type == GPU)


def _has_too_few(free: FreeDevices, needs: DeviceNeeds, mask: int) -> bool:
    """Return whether the zones have some devices of a type, but fewer in all than are needed."""
    for kind, needed in needs.count.items():
        by_zone = free.layout.by_zone[kind]
        if 0 < sum([by_zone.get(zone, 0).bit_count() for zone in nodes_of(mask)]) < needed:
            return True
    return False


def _has_room(free: FreeDevices, needs: DeviceNeeds, mask: int) -> bool:
    """Return whether the zones have as many devices with enough free as are needed."""
    for kind, needed in needs.count.items():
        usable = needs.fitting[kind] & free.minors_in(kind, mask)
        if usable.bit_count() < max(needed, 1):
            return False
    return True
