"""The zones of an object that the plugin uses: type `Node`, named `node-<id>`, ids 0 to 63, in the
object's order.

The original lets id 64 pass its check (`> 64`) and then panics on an array of 64. Here id 64 is
skipped like higher ids. Zones with the same id stay separate entries, with the costs of the last of
them, as in upstream.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec

from plugins.upstream_compat.amounts import Quantities
from plugins.upstream_compat.nrt import Nrt, Zone
from shared.domain.atoi import atoi

MAX_ZONE_ID = 63


class NumaZone(msgspec.Struct):
    """One usable zone. `available` is this caller's own copy and may be subtracted from."""

    id: int
    available: Quantities
    costs: dict[int, int]


def numa_zones(nrt: Nrt) -> list[NumaZone]:
    """Return a new list of the usable zones; of a resource named twice in a zone the last entry
    counts.
    """
    usable = [
        (zone_id, zone)
        for zone in nrt.zones
        if zone.type == "Node" and (zone_id := _usable_id(zone.name)) is not None
    ]
    costs = {zone_id: _costs(zone) for zone_id, zone in usable}
    return [
        NumaZone(zone_id, {each.name: each.available for each in zone.resources}, costs[zone_id])
        for zone_id, zone in usable
    ]


def _usable_id(name: str) -> int | None:
    zone_id = parse_zone_id(name)
    return zone_id if zone_id is not None and zone_id <= MAX_ZONE_ID else None


def _costs(zone: Zone) -> dict[int, int]:
    return {to: cost for name, cost in zone.costs if (to := parse_zone_id(name)) is not None}


@lru_cache(maxsize=1024)
def parse_zone_id(name: str) -> int | None:
    """Return the id in `node-<id>`, or None for any other name."""
    zone_id = atoi(name.removeprefix("node-")) if name.startswith("node-") else None
    return zone_id if zone_id is not None and zone_id >= 0 else None
