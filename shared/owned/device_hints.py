"""Hints of devices: the masks of zones under which all devices of a pod can be chosen together.

The narrowest masks are preferred. Masks under which the pod gets the GPUs that it would get without
a mask score more than CPU and memory together can, so that GPUs decide. Source: Koordinator
a7a1b76b, plugins/deviceshare/topology_hint.go. No service requests cards yet (see `devices`).
"""

from __future__ import annotations

from shared.kubelet.masks import mask_of
from shared.owned.device_choice import DevicesError, choose_devices, needs_of
from shared.owned.devices import ANY_ZONE, GPU, DeviceRequest, FreeDevices
from shared.owned.hints import Hint, masks_of_width
from shared.owned.values import DeviceHolding

BEST_GPUS_SCORE = 500


def device_hints_of(free: FreeDevices, request: DeviceRequest) -> dict[str, list[Hint]]:
    """Return the hints by type; empty if no device has a zone. Raises DevicesError if the devices
    cannot be chosen under the mask of all zones.
    """
    devices = [device for by_minor in free.devices.values() for device in by_minor.values()]
    zones = tuple(sorted({d.zone for d in devices if d.zone is not None} - {ANY_ZONE}))
    widths = range(1, len(zones) + 1)
    masks = [mask for width in widths for mask in masks_of_width(zones, width)]
    chosen: dict[int, tuple[DeviceHolding, ...]] = {}
    for mask in masks:
        try:
            _check_counts(free, request, mask)
            chosen[mask] = choose_devices(free, request, mask, is_scored=False)
        except DevicesError:
            if mask == masks[-1]:
                raise
    width = min((mask.bit_count() for mask in chosen), default=0)
    best = _gpus(chosen[masks[-1]]) if masks else 0
    hints = [
        Hint(mask, mask.bit_count() == width, BEST_GPUS_SCORE if _gpus(held) == best else 0)
        for mask, held in chosen.items()
    ]
    return dict.fromkeys(request.amounts, hints) if hints else {}


def _gpus(holdings: tuple[DeviceHolding, ...]) -> int:
    return mask_of(holding.minor for holding in holdings if holding.type == GPU)


def _check_counts(free: FreeDevices, request: DeviceRequest, mask: int) -> None:
    """Refuse a mask whose zones have some devices of a type, but too few in all."""
    for kind, count in needs_of(free, request).count.items():
        placed = [d for d in free.devices[kind].values() if d.zone not in (None, ANY_ZONE)]
        total = sum(mask >> (device.zone or 0) & 1 for device in placed)
        if 0 < total < count:
            raise DevicesError("Insufficient NUMA Scoped Devices")
