"""The numaplacement payload of resource-topology-exporter 0.25: which container lies on which NUMA
node, in few characters.

A container is known by the XXH64 of `namespace \\0 pod \\0 container`; its offset is its place
among all sorted hashes. Each zone but the busiest carries the delta-coded offsets of its containers
in LEB89. Source: numaplacement v0.1.0. Must not know NodeResourceTopology objects beyond the two
strings that it makes.
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
    """Metadata and the vector of each zone; None when a container spans zones (the payload cannot
    say it). What a pod holds beyond its containers (no container's name) is none of them: a reader
    compares their count with that of the pods' specs."""
    zone_of: dict[int, int] = {}
    for placement in placements:
        found = _zone(placement) if placement.container else None
        if found is not None and len(found) > 1:
            return None
        if found:
            zone_of[_container_hash(placement)] = found[0]
    members = _offsets(zone_of)
    busiest = min(members, key=lambda zone: (-len(members[zone]), zone), default=0)
    metadata = f"npv0v001::ve=leb89::cc={len(zone_of)}::nn={_numbers(zones)}::bn={busiest}"
    return metadata, {zone: _vector(members[zone]) for zone in sorted(members) if zone != busiest}


def _numbers(zones: Iterable[int]) -> int:
    """How many zones a reader must reckon with: it refuses the ids that are not below, so gaps
    between ids count as zones.
    """
    return 1 + max(zones, default=-1)


def _zone(placement: Placement) -> tuple[int, ...] | None:
    """The zones of the first resource that decides: CPUs, else devices, else memory; None when
    nothing does.
    """
    ranked = sorted(
        (entry for entry in placement.held if entry.zones), key=lambda entry: _rank(entry.resource)
    )
    if not ranked:
        return None
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
        _leb89(value - before) for before, value in zip([0, *offsets], offsets, strict=False)
    )


def _leb89(value: int) -> str:
    """Below 64 one symbol; else base-25 digits of (value - 64) // 64, most significant first, then
    the terminal.
    """
    if value < _TERMINALS:
        return _ALPHABET[value]
    rest, terminal = divmod(value - _TERMINALS, _TERMINALS)
    digits = ""
    while True:
        rest, digit = divmod(rest, _DIGITS)
        digits = _ALPHABET[_TERMINALS + digit] + digits
        if rest == 0:
            return digits + _ALPHABET[terminal]
