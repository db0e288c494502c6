"""Where a pod holds resources, as annotations of KAI-Scheduler's NUMA placement exporter say.

1. `numa-placement-observed` has CPUs, devices and memory by zone. It leaves out memory over several
   zones.

2. `numa-memory-groups-observed` (newer) has all memory by the set of zones of each block. It
   replaces the memory of the other annotation. `null` says that it is not complete.

3. A value that cannot be read says nothing.

Source: KAI-Scheduler d5bc503a (pkg/npe/placement), and its design for memory groups
(docs/developer/designs/numa-topology).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from shared.domain import quantity
from shared.domain.report import Placement, ZonedAmount
from shared.domain.resources import CPU, is_memory

PLACEMENT = "kai.scheduler/numa-placement-observed"
MEMORY_GROUPS = "kai.scheduler/numa-memory-groups-observed"
# Longer values are ignored: no description of one pod is so long.
LONGEST = 16 << 10
_ZONE_NAME = re.compile(r"node-(\d{1,5})", re.ASCII)


class _Zone(msgspec.Struct):
    zone: str
    amount: dict[str, str | int]


class _Group(msgspec.Struct):
    zones: list[str] = msgspec.field(name="memoryNodes")
    amount: dict[str, str | int]


def observed_placement(annotations: Mapping[str, Any]) -> tuple[ZonedAmount, ...]:
    """Return what the pod holds by resource and set of zones, sorted; empty if it is not known."""
    try:
        placed = _items(_decoded(annotations, PLACEMENT, list[_Zone]))
        if MEMORY_GROUPS in annotations:
            placed = [item for item in placed if not is_memory(item.resource)]
            placed += _items(_decoded(annotations, MEMORY_GROUPS, list[_Group]))
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return ()
    return tuple(sorted(placed, key=lambda item: (item.resource, item.zones)))


def placement_annotations(placements: Iterable[Placement]) -> dict[str, str]:
    """Return both annotations for the placements of one pod, as the exporter writes them: zones in
    order of their names, decimal amounts, CPUs in whole numbers."""
    by_zone: dict[str, dict[str, int]] = {}
    by_group: dict[tuple[str, ...], dict[str, int]] = {}
    for item in [item for placement in placements for item in placement.held]:
        names = tuple([f"node-{zone}" for zone in item.zones])
        tables = [by_zone.setdefault(names[0], {})] if len(names) == 1 else []
        tables += [by_group.setdefault(names, {})] if is_memory(item.resource) else []
        for amounts in tables:
            amounts[item.resource] = amounts.get(item.resource, 0) + item.amount
    zones = [{"zone": name, "amount": _texts(by_zone[name])} for name in sorted(by_zone)]
    groups = [
        {"memoryNodes": list(names), "amount": _texts(by_group[names])}
        for names in sorted(by_group)
    ]
    encoded = {PLACEMENT: zones, MEMORY_GROUPS: groups}
    return {key: msgspec.json.encode(value).decode() for key, value in encoded.items() if value}


def _texts(amounts: Mapping[str, int]) -> dict[str, str]:
    return {name: str(amounts[name] // (1000 if name == CPU else 1)) for name in sorted(amounts)}


def _decoded(annotations: Mapping[str, Any], key: str, kind: Any) -> Any:
    text = str(annotations.get(key, "[]"))
    if len(text) > LONGEST:
        raise ValueError(f"{key}: {len(text)} characters")
    return msgspec.json.decode(text, type=kind)


def _items(entries: Sequence[_Zone | _Group]) -> list[ZonedAmount]:
    """Raises ValueError."""
    items = []
    for entry in entries:
        names = [entry.zone] if isinstance(entry, _Zone) else entry.zones
        zones = tuple(sorted({_zone_id(name) for name in names}))
        for resource, text in entry.amount.items():
            count = quantity.amount(resource, text)
            if count > 0 and zones:
                items.append(ZonedAmount(resource, zones, count))
    return items


def _zone_id(name: str) -> int:
    match = _ZONE_NAME.fullmatch(name)
    if match is None:
        raise ValueError(f"{name!r} is no zone name")
    return int(match[1])
