"""Device ids as short text: hostlist notation, as Slurm writes it (`nic-[0-3,7],GPU-ab12`).

Ids that differ only in a number at their end share one item; `%`, `,`, `[`, `]`, blanks and control
characters inside an id are percent-encoded. CPU ids are not written so: they are Linux lists. Must
not know what a device is.
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
    """The hostlist of a set of ids, sorted; the empty set is the empty text."""
    listed = [_SPECIAL.sub(lambda found: f"%{ord(found[0]):02X}", each) for each in ids]
    if len(listed) < 2:
        return "".join(listed)
    numbers: dict[str, list[int]] = {}
    plain = []
    for text in sorted(set(listed)):
        found = _NUMBERED.fullmatch(text)
        if found is None:
            plain.append(text)
        else:
            numbers.setdefault(found[1], []).append(int(found[2]))
    items = [
        f"{prefix}[{_ranges(found)}]" if len(found) > 1 else f"{prefix}{found[0]}"
        for prefix, found in numbers.items()
    ]
    return ",".join(sorted(items + plain))


def parse_ids(text: str, limit: int = MAX_IDS) -> tuple[str, ...]:
    """The ids of a hostlist, sorted. ValueError names the part that is wrong, or says that it names
    more than `limit` ids.
    """
    found: set[str] = set()
    at = 0
    while at < len(text):
        item = _ITEM.match(text, at)
        if item is None or not item[0] or text[item.end() : item.end() + 1] not in ("", ","):
            raise ValueError(f"{text[at : at + 40]!r} is no list of ids such as nic-[0-3,7],gpu-1")
        for each in _expanded(item[1], item[2], limit):
            found.add(_ESCAPED.sub(lambda code: chr(int(code[1], 16)), each))
            if len(found) > limit:
                raise ValueError(f"more than {limit} ids")
        at = item.end() + 1
    return tuple(sorted(found))


def _expanded(prefix: str, ranges: str | None, limit: int) -> Iterator[str]:
    if ranges is None:
        yield prefix
        return
    for part in ranges.split(","):
        found = _RANGE.fullmatch(part)
        if found is None or int(found[2] or found[1]) - int(found[1]) not in range(limit + 1):
            raise ValueError(f"{part!r} is no ascending range of at most {limit} numbers")
        for number in range(int(found[1]), int(found[2] or found[1]) + 1):
            yield f"{prefix}{number}"


def _ranges(numbers: list[int]) -> str:
    """`0-3,7` for 0, 1, 2, 3, 7."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
