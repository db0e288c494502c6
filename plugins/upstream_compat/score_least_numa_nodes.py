"""LeastNUMANodes as the plugin computes it: fewer zones score higher, and a nearest possible set
gets half a step more.

If the original panics or leaves 0 to 100:
- Charging a container uses the zone id as an index of the zone list, and an id past the end panics.
  Then the pod is scored again with the charge taken from the chosen zones. Ids inside the list keep
  the original's mistake: the wrong zone is charged.
- More zones than the node's limit give a negative score: here 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from plugins.upstream_compat.amounts import ZERO, Quantities, minus
from plugins.upstream_compat.nrt import Nrt
from plugins.upstream_compat.numa_sets import ZoneSet, zones_required
from plugins.upstream_compat.pod import Pod, effective_request
from plugins.upstream_compat.zones import NumaZone, numa_zones

Charge = Callable[[Quantities, Sequence[NumaZone], ZoneSet], bool]


def score(pod: Pod, nrt: Nrt) -> int:
    """Return the node's score under either scope, for any policy."""
    limit = nrt.manager.max_numa_nodes
    if nrt.manager.scope == "pod":
        return _of_request(effective_request(pod), numa_zones(nrt), limit)
    scores = _of_containers(pod, numa_zones(nrt), limit, _charge_by_id_as_position)
    if scores is None:
        scores = _of_containers(pod, numa_zones(nrt), limit, _charge_chosen)
    return scores or 0


def _of_request(request: Quantities, zones: Sequence[NumaZone], limit: int) -> int:
    if not _touches_zones(request, zones):
        return 100
    zone_count = zones_required(request, zones)
    return 0 if zone_count is None else _steps(len(zone_count.ids), zone_count.nearest, limit)


def _of_containers(pod: Pod, zones: Sequence[NumaZone], limit: int, charge: Charge) -> int | None:
    """Return the most zones that a container needs; None if `charge` fails."""
    count, nearest = 0, True
    for container in pod.containers:
        if not _touches_zones(container.requests, zones):
            continue
        zone_count = zones_required(container.requests, zones)
        if zone_count is None:
            return 0
        count, nearest = max(count, len(zone_count.ids)), nearest and zone_count.nearest
        if not charge(container.requests, zones, zone_count):
            return None
    return _steps(count, nearest, limit) if count else 100


def _steps(count: int, nearest: bool, limit: int) -> int:
    unit = 100 // limit
    return max(0, 100 - count * unit + (unit // 2 if nearest else 0))


def _touches_zones(request: Quantities, zones: Sequence[NumaZone]) -> bool:
    return any(name in zone.available for name in request for zone in zones)


def _charge_by_id_as_position(
    request: Quantities, zones: Sequence[NumaZone], chosen: ZoneSet
) -> bool:
    """Charge by zone id as position. Return False if the original would index past the end of its
    list.
    """
    for name, quantity in request.items():
        remaining = quantity.nano
        for position in sorted(chosen.ids):
            if remaining == 0:
                break
            if position >= len(zones):
                return False
            remaining = _take(zones[position], name, remaining)
    return True


def _charge_chosen(request: Quantities, zones: Sequence[NumaZone], chosen: ZoneSet) -> bool:
    for name, quantity in request.items():
        remaining = quantity.nano
        for position in sorted(chosen.positions, key=lambda at: zones[at].id):
            remaining = _take(zones[position], name, remaining)
    return True


def _take(zone: NumaZone, name: str, wanted_nano: int) -> int:
    """Subtract up to `wanted_nano` from the zone, and return what is still missing."""
    amount = zone.available.get(name)
    if amount is None:
        return wanted_nano
    taken = min(amount.nano, wanted_nano)
    zone.available[name] = minus(amount, type(amount)(taken)) if amount.nano > taken else ZERO
    return wanted_nano - taken
