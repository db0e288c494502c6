"""Which zones of an object the plugin works with: type `Node`, named `node-<id>`, ids 0 to 63, in the object's order.

The original lets id 64 past its guard (`> 64`) and then panics on an array of 64. Stated verdict here: id 64 is
skipped like the ids above it. Zones that share an id stay separate entries, as upstream keeps them.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec

from services.scheduler.compat.amounts import Quantities
from services.scheduler.compat.nrt import Nrt
from services.scheduler.compat.topology_manager import atoi

MAX_ZONE_ID = 63


class NumaZone(msgspec.Struct):
    """One usable zone. `available` is this caller's own copy and may be subtracted from."""

    id: int
    available: Quantities
    costs: dict[int, int]


def numa_zones(nrt: Nrt) -> list[NumaZone]:
    """A fresh list of the usable zones; of a resource named twice in a zone the last entry counts."""
    found = []
    for zone in nrt.zones:
        zone_id = parse_zone_id(zone.name) if zone.type == "Node" else None
        if zone_id is None or zone_id > MAX_ZONE_ID:
            continue
        costs = {to: cost for name, cost in zone.costs if (to := parse_zone_id(name)) is not None}
        found.append(NumaZone(zone_id, {each.name: each.available for each in zone.resources}, costs))
    return found


@lru_cache(maxsize=1024)
def parse_zone_id(name: str) -> int | None:
    """The id in `node-<id>`, or None for any other name."""
    parts = name.split("-")
    return atoi(parts[1]) if len(parts) == 2 and parts[0] == "node" else None
