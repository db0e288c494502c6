"""The plugin's one test: which single zone can hold this request, and what is left of the zones
after it took it.

Knows no pods and no statuses. The zone named is the lowest one left, as the kubelet's
narrowest-then-lowest rule gives; when nothing constrains the request it is zone 0, even where there
is no zone 0.
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
    """The first resource, by name, that left no zone."""

    resource: str
    why: str


class Overdrawn(msgspec.Struct, frozen=True):
    """Two entries of one zone id: the second could not give what the first was tested for."""

    resource: str
    request: Quantity
    zone: int
    available: Quantity


def align(
    request: Quantities, qos: Qos, offered: Collection[str], zones: Sequence[NumaZone]
) -> int | Misfit:
    """The lowest zone id that suits every non-zero resource of the request, or why there is
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
    """Take the request from every zone entry of that id, in place; stops at the first that cannot
    give.
    """
    for zone in zones:
        if zone.id != zone_id:
            continue
        for name, quantity in sorted(request.items()):
            held = zone.available.get(name)
            if held is None or quantity.nano == 0 or not _compared(name, qos):
                continue
            if held.nano < quantity.nano:
                return Overdrawn(name, quantity, zone_id, held)
            zone.available[name] = minus(held, quantity)
    return None


def _suits(name: str, quantity: Quantity, qos: Qos, zone: NumaZone) -> bool:
    return not _compared(name, qos) or zone.available[name].nano >= quantity.nano


def _compared(name: str, qos: Qos) -> bool:
    """Only a Guaranteed pod's cpu, memory and hugepages are compared; devices always are."""
    return qos == "Guaranteed" or not is_numa_affine(name)
