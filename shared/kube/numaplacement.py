"""The numaplacement payload of resource-topology-exporter 0.25: the NUMA node of each container, in
few characters.

The XXH64 of `namespace \\0 pod \\0 container` identifies a container. Its offset is its place among
all sorted hashes. Each zone but the busiest carries the delta-coded offsets of its containers in
LEB89. Source: numaplacement v0.1.0.
"""

from __future__ import annotations

from collections.abc import Iterable

import xxhash

from shared.domain.report import Placement
from shared.domain.resources import CPU, MEMORY, is_hugepages

METADATA_ATTRIBUTE = "topology.node.k8s.io/numaplacement-metadata"
VECTOR_ATTRIBUTE = "topology.node.k8s.io/numaplacement-vector"
_ALPHABET = [chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"&<>\\']
_TERMINALS = 64
_DIGITS = 25


def encode(
    placements: Iterable[Placement], zones: Iterable[int]
) -> tuple[str, dict[int, str]] | None:
    """Return metadata and the vector of each zone, or None if a container spans zones, which the
    payload cannot express. Resources of a pod outside its containers do not count, because a reader
    compares the number of containers with the pods' specs."""
    zone_of: dict[int, int] = {}
    for placement in placements:
        zones_used = _zones_of(placement) if placement.container else ()
        if len(zones_used) > 1:
            return None
        if zones_used:
            zone_of[_container_hash(placement)] = zones_used[0]
    members = _offsets(zone_of)
    busiest = min(members, key=lambda zone: (-len(members[zone]), zone), default=0)
    metadata = f"npv0v001::ve=leb89::cc={len(zone_of)}::nn={_numbers(zones)}::bn={busiest}"
    return metadata, {zone: _vector(members[zone]) for zone in sorted(members) if zone != busiest}


def _numbers(zones: Iterable[int]) -> int:
    """Return the highest id plus 1: a reader refuses higher ids, so gaps count as zones."""
    return 1 + max(zones, default=-1)


def _zones_of(placement: Placement) -> tuple[int, ...]:
    """Return the zones of the CPUs, else of the devices, else of the memory."""
    ranked = sorted(
        (entry for entry in placement.held if entry.zones), key=lambda entry: _rank(entry.resource)
    )
    if not ranked:
        return ()
    first = _rank(ranked[0].resource)
    return tuple(
        sorted({zone for entry in ranked if _rank(entry.resource) == first for zone in entry.zones})
    )


def _rank(resource: str) -> int:
    if resource == CPU:
        return 0
    return 2 if resource == MEMORY or is_hugepages(resource) else 1


def _container_hash(placement: Placement) -> int:
    name = f"{placement.namespace}\0{placement.pod}\0{placement.container}"
    return xxhash.xxh64_intdigest(name.encode())


def _offsets(zone_of: dict[int, int]) -> dict[int, list[int]]:
    members: dict[int, list[int]] = {}
    for offset, key in enumerate(sorted(zone_of)):
        members.setdefault(zone_of[key], []).append(offset)
    return members


def _vector(offsets: list[int]) -> str:
    return "".join(
        _leb89(value - previous) for previous, value in zip([0, *offsets], offsets, strict=False)
    )


def _leb89(value: int) -> str:
    """Encode a value below 64 as one symbol, others as base-25 digits of (value - 64) // 64, most
    significant first, and a terminal."""
    if value < _TERMINALS:
        return _ALPHABET[value]
    rest, terminal = divmod(value - _TERMINALS, _TERMINALS)
    digits = ""
    while True:
        rest, digit = divmod(rest, _DIGITS)
        digits = _ALPHABET[_TERMINALS + digit] + digits
        if rest == 0:
            return digits + _ALPHABET[terminal]
