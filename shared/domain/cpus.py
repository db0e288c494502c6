"""The CPUs of a node by id and how they nest, in short text: 256 CPUs in some hundred bytes.

One column each for zone, socket, core and last-level cache, with one number for every CPU in
ascending id. A column is a list of runs: `7` is one number, `0-63` ascends by one, `3x16` is
sixteen times 3. An empty column is not known. Must not know /sys, nor what a kubelet does with its
CPUs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

MAX_CPUS = 8192
"""As many as Linux supports (CONFIG_NR_CPUS)."""
_RUN = re.compile(r"([0-9]{1,9})(?:([-x])([0-9]{1,9}))?")


class CpuLayout(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """`ids` is a Linux list (`0-63`); the columns are runs. Cores and caches are numbered by their
    lowest CPU, sockets as the kernel numbers them (physical_package_id)."""

    ids: str = ""
    zones: str = ""
    sockets: str = ""
    cores: str = ""
    caches: str = ""


def format_runs(numbers: Sequence[int]) -> str:
    """The column of these numbers; each run as long as it can be."""
    parts, at = [], 0
    while at < len(numbers):
        same, rising = _length(numbers, at, 0), _length(numbers, at, 1)
        if same >= rising:
            parts.append(f"{numbers[at]}x{same}" if same > 1 else str(numbers[at]))
        else:
            parts.append(f"{numbers[at]}-{numbers[at] + rising - 1}")
        at += max(same, rising)
    return ",".join(parts)


def _length(numbers: Sequence[int], at: int, step: int) -> int:
    end = at + 1
    while end < len(numbers) and numbers[end] == numbers[end - 1] + step:
        end += 1
    return end - at


def parse_runs(text: str, limit: int = MAX_CPUS) -> tuple[int, ...]:
    """The numbers of a column. ValueError names the run that is wrong, or says that there are more
    than `limit`.
    """
    numbers: list[int] = []
    for part in text.split(",") if text else ():
        found = _RUN.fullmatch(part)
        if found is None:
            raise ValueError(f"{part!r} is no run such as 7, 0-63 or 3x16")
        first, other = int(found[1]), int(found[3] or found[1])
        count = other if found[2] == "x" else other - first + 1
        if not 0 < count <= limit - len(numbers):
            raise ValueError(f"run {part!r} descends, is empty, or makes more than {limit} numbers")
        numbers.extend([first] * count if found[2] == "x" else range(first, other + 1))
    return tuple(numbers)
