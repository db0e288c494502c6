"""The numaplacement payload of resource-topology-exporter 0.25: the NUMA node of each container, in
few characters.

The XXH64 of `namespace \\0 pod \\0 container` identifies a container. Its offset is its place among
all sorted hashes. Each zone but the busiest carries the delta-coded offsets of its containers in
LEB89. Source: numaplacement v0.1.0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from shared.domain.atoi import atoi
from shared.domain.report import Placement
from shared.domain.resources import CPU, MEMORY, is_hugepages
from shared.kubelet.fingerprint import container_hash

METADATA_ATTRIBUTE = "topology.node.k8s.io/numaplacement-metadata"
VECTOR_ATTRIBUTE = "topology.node.k8s.io/numaplacement-vector"
_ALPHABET = [chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"&<>\\']
_VALUE = {symbol: value for value, symbol in enumerate(_ALPHABET)}
_TERMINALS = 64
_DIGITS = 25
_PREFIX = "npv0"
_VERSION = "v001"
# Containers and zones of one object; a kubelet runs some hundred pods.
MOST_CONTAINERS = 1 << 14
MOST_ZONES = 1024


class VectorError(ValueError):
    """A payload that cannot be decoded. `zone` is that of the wrong vector, None for the
    metadata."""

    def __init__(self, problem: str, zone: int | None = None) -> None:
        super().__init__(problem)
        self.zone = zone


def decode(metadata: str, vectors: Mapping[int, str]) -> tuple[int, ...] | None:
    """Return the zone of each container by its offset; None for another version of the format.

    Only the number of containers shows whether a reader knows the same ones. Raises VectorError."""
    prefix, _, fields = metadata.partition("::")
    if prefix != _PREFIX + _VERSION:
        if metadata.startswith(_PREFIX) and len(prefix) == len(_PREFIX + _VERSION):
            return None
        raise VectorError(f"{metadata[:40]!r} does not begin with {_PREFIX}{_VERSION}::")
    values = _fields(fields)
    if values["ve"] != "leb89":
        raise VectorError(f"encoding ve={values['ve'][:20]!r} is unknown; expected leb89")
    count = _number(values, "cc", 0, MOST_CONTAINERS)
    zones = _number(values, "nn", 1, MOST_ZONES)
    busiest = _number(values, "bn", 0, zones - 1)
    zone_of: dict[int, int] = {}
    for zone in sorted(vectors):
        if not 0 <= zone < zones or zone == busiest:
            raise VectorError(f"zone {zone} may have none (nn={zones}, bn={busiest})", zone)
        for offset in _offsets_in(vectors[zone], zone, count):
            if zone_of.setdefault(offset, zone) != zone:
                raise VectorError(f"offset {offset} is in zone {zone_of[offset]}, too", zone)
    return tuple([zone_of.get(offset, busiest) for offset in range(count)])


def _fields(text: str) -> dict[str, str]:
    values: dict[str, str] = {}
    for pair in text.split("::"):
        key, separator, value = pair.partition("=")
        if not (separator and key in ("ve", "cc", "nn", "bn") and value) or key in values:
            raise VectorError(f"{pair[:40]!r} is none of ve=, cc=, nn=, bn=, each once")
        values[key] = value
    if len(values) != len(("ve", "cc", "nn", "bn")):
        raise VectorError("ve=, cc=, nn= or bn= is missing")
    return values


def _number(values: Mapping[str, str], key: str, least: int, most: int) -> int:
    number = atoi(values[key])
    if number is None or not least <= number <= most:
        raise VectorError(f"{key}={values[key][:20]!r} is no number from {least} to {most}")
    return number


def _offsets_in(vector: str, zone: int, count: int) -> list[int]:
    """Return the offsets of a zone's containers, ascending."""
    offsets: list[int] = []
    value = digits = 0
    for symbol in vector:
        digit = _VALUE.get(symbol)
        if digit is None:
            raise VectorError(f"{symbol!r} is no symbol of LEB89", zone)
        if digit >= _TERMINALS:
            value, digits = value * _DIGITS + digit - _TERMINALS, digits + 1
            if value > count:
                raise VectorError(f"an offset is above the {count} containers of cc=", zone)
            continue
        step = _TERMINALS + value * _TERMINALS + digit if digits else digit
        if offsets and not step:
            raise VectorError(f"offset {offsets[-1]} appears twice", zone)
        offsets.append((offsets[-1] if offsets else 0) + step)
        if offsets[-1] >= count:
            raise VectorError(f"offset {offsets[-1]} is above the {count} containers of cc=", zone)
        value = digits = 0
    if digits:
        raise VectorError("ends inside a number", zone)
    return offsets


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
            key = container_hash(placement.namespace, placement.pod, placement.container)
            zone_of[key] = zones_used[0]
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
