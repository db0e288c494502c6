"""The CPUs of a node by id and how they nest, as short text: 256 CPUs take some hundred bytes.

There is one column each for zone, socket, core and last-level cache, with one number for every CPU
in ascending id. A column is a list of runs: `7` is one number, `0-63` ascends by one, `3x16` is
sixteen times 3. An empty column is unknown. This module does not know /sys or the kubelet.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

# The most that Linux supports (CONFIG_NR_CPUS).
MAX_CPUS = 8192
_RUN = re.compile(r"([0-9]{1,9})(?:([-x])([0-9]{1,9}))?")


class CpuLayout(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The nesting of CPUs. `ids` is a Linux list (`0-63`), the other columns are runs.

    Cores and caches are numbered by their lowest CPU, sockets as the kernel numbers them
    (physical_package_id).
    """

    ids: str = ""
    zones: str = ""
    sockets: str = ""
    cores: str = ""
    caches: str = ""


def format_runs(numbers: Sequence[int]) -> str:
    """Return the column for these numbers, with each run as long as possible."""
    parts, index = [], 0
    while index < len(numbers):
        same, rising = _length(numbers, index, 0), _length(numbers, index, 1)
        if same >= rising:
            parts.append(f"{numbers[index]}x{same}" if same > 1 else str(numbers[index]))
        else:
            parts.append(f"{numbers[index]}-{numbers[index] + rising - 1}")
        index += max(same, rising)
    return ",".join(parts)


def _length(numbers: Sequence[int], start: int, step: int) -> int:
    end = start + 1
    while end < len(numbers) and numbers[end] == numbers[end - 1] + step:
        end += 1
    return end - start


def parse_runs(text: str, limit: int = MAX_CPUS) -> tuple[int, ...]:
    """Return the numbers of a column. Raises ValueError that names the wrong run, or says that
    there are more than `limit`.
    """
    numbers: list[int] = []
    for part in text.split(",") if text else ():
        match = _RUN.fullmatch(part)
        if match is None:
            raise ValueError(f"{part!r} is no run such as 7, 0-63 or 3x16")
        first, last = int(match[1]), int(match[3] or match[1])
        count = last if match[2] == "x" else last - first + 1
        if not 0 < count <= limit - len(numbers):
            raise ValueError(f"run {part!r} descends, is empty, or makes more than {limit} numbers")
        numbers.extend([first] * count if match[2] == "x" else range(first, last + 1))
    return tuple(numbers)
