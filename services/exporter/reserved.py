"""What a kubelet's configuration reserves, and what pods may have of each zone's unmanaged amounts.

1. `reservedSystemCPUs` are CPUs of their own. They take the place of what kubeReserved and
   systemReserved say about CPUs (kubelet 1.36).
2. Other reservations are for the node as a whole: an equal share of them, rounded up, is taken from
   each zone that has some of the resource.
3. The hard eviction threshold of memory counts as reserved, as in Node Allocatable.

Must not know files, managers or pods.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from shared.domain import fields
from shared.domain.report import Zone
from shared.domain.resources import CPU, MEMORY, Amounts
from shared.kubelet.cpuset import ids_of, parse_cpus

SECTIONS = "kubeReserved", "systemReserved"
EVICTION, MEMORY_SIGNAL, DEFAULT_EVICTION = "evictionHard", "memory.available", "100Mi"
RESERVED_CPUS = "reservedSystemCPUs"
MILLI = 1000


class Reserved(msgspec.Struct, frozen=True):
    """CPUs by id (a Linux list), and amounts of the whole node. `memory_share` is a part of all
    memory in addition."""

    cpus: str = ""
    amounts: Amounts = {}
    memory_share: float = 0.0


def reserved(content: Mapping[str, Any]) -> Reserved | None:
    """Return what a KubeletConfiguration reserves; None if that cannot be read."""
    try:
        cpus = str(content.get(RESERVED_CPUS) or "")
        parse_cpus(cpus)
        total: Amounts = {}
        for section in SECTIONS:
            for name, amount in fields.amounts(content, section, "").items():
                total[name] = total.get(name, 0) + amount
        threshold, share = _eviction(content)
    except (fields.RefusedError, ValueError):
        return None
    if cpus:
        total.pop(CPU, None)
    total[MEMORY] = total.get(MEMORY, 0) + threshold
    return Reserved(cpus, total, share)


def sets_reservations(content: Mapping[str, Any]) -> bool:
    """Return whether a source names reservations; defaults then do not count."""
    return any(content.get(field) for field in (RESERVED_CPUS, *SECTIONS))


def _eviction(content: Mapping[str, Any]) -> tuple[int, float]:
    """Return the hard eviction threshold of memory: bytes, and a share of all memory. Raises
    ValueError.
    """
    thresholds = fields.texts(content, EVICTION, "")
    text = thresholds.get(MEMORY_SIGNAL, "" if content.get(EVICTION) else DEFAULT_EVICTION)
    if text.endswith("%"):  # 0% and 100% both switch the threshold off
        percent = float(text[:-1])
        if not 0 <= percent <= 100:  # no number, too
            raise ValueError(f"{MEMORY_SIGNAL}: {text!r} is no percentage")
        return 0, percent / 100 % 1
    return fields.amounts({"all": {MEMORY: text}}, "all", "")[MEMORY] if text else 0, 0.0


def with_offered(
    zones: tuple[Zone, ...], zone_of_cpu: Mapping[int, int], reservation: Reserved
) -> tuple[Zone, ...]:
    """Return the zones with what pods may have of their unmanaged amounts (`Zone.offered`)."""
    cpus_reserved = ids_of(parse_cpus(reservation.cpus))
    having: dict[str, int] = {}
    for zone in zones:
        for name, amount in zone.bounds.items():
            having[name] = having.get(name, 0) + (amount > 0)
    whole = dict(reservation.amounts)
    memory = sum(zone.bounds.get(MEMORY, 0) for zone in zones)
    whole[MEMORY] = whole.get(MEMORY, 0) + int(memory * reservation.memory_share)
    made = []
    for zone in zones:
        taken = {name: -(-whole.get(name, 0) // (having[name] or 1)) for name in zone.bounds}
        if CPU in taken:
            in_zone = [cpu for cpu in cpus_reserved if zone_of_cpu.get(cpu) == zone.id]
            taken[CPU] += len(in_zone) * MILLI
        offered = {name: max(0, amount - taken[name]) for name, amount in zone.bounds.items()}
        made.append(msgspec.structs.replace(zone, offered=offered))
    return tuple(made)
