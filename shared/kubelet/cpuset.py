"""CPU sets: Python integers inside (bit i = CPU i), Linux lists such as `0-3,6` at the edges. This
module does not know topology or policy.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

# Linux supports no larger CPU id (CONFIG_NR_CPUS).
MAX_CPU_ID = 8191

# Size of the cache of formatted sets: on one node few sets change from scan to scan.
KEPT = 4096

_PART = re.compile(r"([0-9]{1,6})(?:-([0-9]{1,6}))?")


def parse_cpus(text: str) -> int:
    """Return the set for a list such as `0-3,6`. The empty text is the empty set. Raises ValueError
    that names the wrong part.
    """
    cpus = 0
    for part in text.strip().split(",") if text.strip() else ():
        first, last = _bounds(part.strip())
        cpus |= (1 << last + 1) - (1 << first)
    return cpus


def _bounds(part: str) -> tuple[int, int]:
    match = _PART.fullmatch(part)
    if match is None:
        raise ValueError(f"{part!r} is no CPU id or range; write a Linux list such as 0-3,6")
    first, last = int(match[1]), int(match[2] or match[1])
    if first > last or last > MAX_CPU_ID:
        raise ValueError(f"{part!r} is no ascending range of CPU ids up to {MAX_CPU_ID}")
    return first, last


@lru_cache(maxsize=KEPT)
def format_cpus(cpus: int) -> str:
    """Return the Linux list of a set: ascending, runs joined (cpuset.String)."""
    parts = []
    while cpus:
        first = (cpus & -cpus).bit_length() - 1
        rest = (cpus >> first) + 1
        length = (rest & -rest).bit_length() - 1
        parts.append(f"{first}-{first + length - 1}" if length > 1 else str(first))
        cpus = cpus >> first + length << first + length
    return ",".join(parts)


def cpus_of(ids: Iterable[int]) -> int:
    cpus = 0
    for cpu in ids:
        cpus |= 1 << cpu
    return cpus


def union(sets: Iterable[int]) -> int:
    """Return all CPUs of several sets."""
    joined = 0
    for cpus in sets:
        joined |= cpus
    return joined


def each_cpu(cpus: int) -> Iterator[int]:
    """Yield the CPU ids of a set, ascending."""
    while cpus:
        lowest = cpus & -cpus
        yield lowest.bit_length() - 1
        cpus ^= lowest


@lru_cache(maxsize=KEPT)
def ids_of(cpus: int) -> tuple[int, ...]:
    """Return the CPU ids of a set, ascending, as a value."""
    return tuple(each_cpu(cpus))
