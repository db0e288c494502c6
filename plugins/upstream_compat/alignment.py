"""The plugin's only test: which single zone can hold this request, and what remains of the zones
after the request is subtracted.

This module does not know pods and statuses. The chosen zone is the lowest one that fits, as in the
kubelet (narrowest, then lowest). If nothing constrains the request it is zone 0, even if the node
has no zone 0.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from plugins.upstream_compat.amounts import Quantities, is_host_level, minus
from plugins.upstream_compat.zones import NumaZone
from shared.domain.pod import Qos
from shared.domain.quantity import Quantity
from shared.domain.resources import is_numa_affine


class Misfit(msgspec.Struct, frozen=True):
    """The first resource, by name, for which no zone remained."""

    resource: str
    why: str


class Overdrawn(msgspec.Struct, frozen=True):
    """Two entries have one zone id, and the second has less than the first, which was tested."""

    resource: str
    request: Quantity
    zone: int
    available: Quantity


def align(
    request: Quantities, qos: Qos, offered: Collection[str], zones: Sequence[NumaZone]
) -> int | Misfit:
    """Return the lowest zone id that suits every non-zero resource of the request, or why there is
    none.
    """
    ids: set[int] | None = None
    for name, quantity in sorted(request.items()):
        if quantity.nano == 0:
            continue
        if name not in offered:
            return Misfit(name, "the node does not offer it")
        listing = [zone for zone in zones if name in zone.available]
        if not listing and is_host_level(name):
            continue
        suited = {zone.id for zone in listing if _suits(name, quantity, qos, zone)}
        ids = suited if ids is None else ids & suited
        if not ids:
            return Misfit(name, "no zone suits it together with the resources before it")
    return min(ids) if ids else 0


def subtract(
    request: Quantities, qos: Qos, zones: Sequence[NumaZone], zone_id: int
) -> Overdrawn | None:
    """Subtract the request in place from every zone entry with that id. Stops at the first entry
    that has too little.
    """
    for zone in zones:
        if zone.id != zone_id:
            continue
        for name, quantity in sorted(request.items()):
            amount = zone.available.get(name)
            if amount is None or quantity.nano == 0 or not _compared(name, qos):
                continue
            if amount.nano < quantity.nano:
                return Overdrawn(name, quantity, zone_id, amount)
            zone.available[name] = minus(amount, quantity)
    return None


def _suits(name: str, quantity: Quantity, qos: Qos, zone: NumaZone) -> bool:
    return not _compared(name, qos) or zone.available[name].nano >= quantity.nano


def _compared(name: str, qos: Qos) -> bool:
    """Return the resources to compare: cpu, memory and hugepages only of Guaranteed pods, devices
    always.
    """
    return qos == "Guaranteed" or not is_numa_affine(name)
