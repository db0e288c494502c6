"""Hints of devices: the masks of zones under which all devices of a pod can be chosen together.

The narrowest masks are preferred. Masks under which the pod gets the GPUs that it would get without
a mask score more than CPU and memory together can, so that GPUs decide. Source: Koordinator
a7a1b76b, plugins/deviceshare/topology_hint.go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from shared.domain.zone_allocation import DeviceHolding
from shared.kubelet.masks import mask_of, nodes_of
from shared.owned.device_choice import DevicesError, choose_devices, needs_of
from shared.owned.devices import ANY_ZONE, GPU, DeviceRequest, FreeDevices
from shared.owned.hints import Hint, masks_of_width

BEST_GPUS_SCORE = 500


def device_hints_of(
    free: FreeDevices, request: DeviceRequest, only_narrowest: bool = False
) -> dict[str, list[Hint]]:
    """Return the hints by type; empty if no device has a zone. Raises DevicesError if the devices
    cannot be chosen under the mask of all zones. `only_narrowest` leaves out masks that are not
    preferred, except that of all zones.
    """
    devices = [device for by_minor in free.devices.values() for device in by_minor.values()]
    zones = tuple(sorted({d.zone for d in devices if d.zone is not None} - {ANY_ZONE}))
    if free.every and any(d.zone is None and d.type in request.amounts for d in devices):
        zones = nodes_of(free.every)
    if not zones:
        return {}
    needs, every = needs_of(free, request), mask_of(zones)
    counts = [
        (count, Counter(device.zone for device in free.devices[kind].values()))
        for kind, count in needs.count.items()
    ]
    chosen: dict[int, tuple[DeviceHolding, ...]] = {}
    for width in range(1, len(zones)):
        for mask in masks_of_width(zones, width):
            if _has_too_few(counts, mask):
                continue
            try:
                chosen[mask] = choose_devices(free, request, mask, is_scored=False, needs=needs)
            except DevicesError:
                continue
        if chosen and only_narrowest:
            break
    if _has_too_few(counts, every):
        raise DevicesError("Insufficient NUMA Scoped Devices")
    chosen[every] = choose_devices(free, request, every, is_scored=False, needs=needs)
    width, best = min(map(int.bit_count, chosen)), _gpus(chosen[every])
    hints = [
        Hint(mask, mask.bit_count() == width, BEST_GPUS_SCORE if _gpus(cards) == best else 0)
        for mask, cards in chosen.items()
    ]
    return dict.fromkeys(request.amounts, hints)


def _gpus(holdings: tuple[DeviceHolding, ...]) -> int:
    return mask_of(holding.minor for holding in holdings if holding.type == GPU)


def _has_too_few(counts: Sequence[tuple[int, Mapping[int | None, int]]], mask: int) -> bool:
    """Return whether the zones have some devices of a type, but fewer in all than are needed."""
    for needed, by_zone in counts:
        total = sum([by_zone.get(zone, 0) for zone in nodes_of(mask)])
        if 0 < total < needed:
            return True
    return False
