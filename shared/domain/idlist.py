"""Device ids as short text, in the hostlist notation of Slurm (`nic-[0-3,7],GPU-ab12`).

Ids that differ only in a trailing number share one item. `%`, `,`, `[`, `]`, blanks and control
characters inside an id are percent-encoded. CPU ids use Linux lists instead. This module does not
know devices.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

MAX_IDS = 65_536
_NUMBERED = re.compile(r"(.*?)(0|[1-9][0-9]{0,8})", re.DOTALL)
_ITEM = re.compile(r"([^,\[\]]*)(?:\[([0-9,-]+)\])?")
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
_SPECIAL = re.compile(r"[\x00-\x20%,\[\]\x7f]")
_ESCAPED = re.compile(r"%([0-9A-F]{2})")


def format_ids(ids: Iterable[str]) -> str:
    """Return the hostlist of a set of ids, sorted. The empty set gives the empty text."""
    listed = [_SPECIAL.sub(lambda found: f"%{ord(found[0]):02X}", device_id) for device_id in ids]
    if len(listed) < 2:
        return "".join(listed)
    numbers: dict[str, list[int]] = {}
    plain = []
    for text in sorted(set(listed)):
        match = _NUMBERED.fullmatch(text)
        if match is None:
            plain.append(text)
        else:
            numbers.setdefault(match[1], []).append(int(match[2]))
    items = [
        f"{prefix}[{_ranges(found)}]" if len(found) > 1 else f"{prefix}{found[0]}"
        for prefix, found in numbers.items()
    ]
    return ",".join(sorted(items + plain))


def parse_ids(text: str, limit: int = MAX_IDS) -> tuple[str, ...]:
    """Return the ids of a hostlist, sorted. Raises ValueError that names the wrong part, or says
    that there are more than `limit` ids.
    """
    ids: set[str] = set()
    offset = 0
    while offset < len(text):
        item = _ITEM.match(text, offset)
        if item is None or not item[0] or text[item.end() : item.end() + 1] not in ("", ","):
            raise ValueError(
                f"{text[offset : offset + 40]!r} is no list of ids such as nic-[0-3,7],gpu-1"
            )
        for encoded in _expanded(item[1], item[2], limit):
            ids.add(_ESCAPED.sub(lambda code: chr(int(code[1], 16)), encoded))
            if len(ids) > limit:
                raise ValueError(f"more than {limit} ids")
        offset = item.end() + 1
    return tuple(sorted(ids))


def _expanded(prefix: str, ranges: str | None, limit: int) -> Iterator[str]:
    if ranges is None:
        yield prefix
        return
    for part in ranges.split(","):
        match = _RANGE.fullmatch(part)
        if match is None or int(match[2] or match[1]) - int(match[1]) not in range(limit + 1):
            raise ValueError(f"{part!r} is no ascending range of at most {limit} numbers")
        for number in range(int(match[1]), int(match[2] or match[1]) + 1):
            yield f"{prefix}{number}"


def _ranges(numbers: list[int]) -> str:
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
