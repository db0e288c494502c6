"""Shell patterns as Go's filepath.Match reads them, which resource-topology-exporter's podExclude
is written in.

Python's fnmatch differs: `[^a]` is there `^` or `a`, and a backslash is a backslash. Pure. Source:
path/filepath/match.go.
"""

from __future__ import annotations

import re
from functools import lru_cache

_ITEM = r"(?:\\.|[^\\\]\-])"
_TOKEN = re.compile(
    rf"(?P<stars>\*+)|(?P<one>\?)|\[(?P<others>\^?+)(?P<ranges>(?:{_ITEM}(?:-{_ITEM})?)+)\]|\\(?P<escaped>.)|(?P<plain>[^\\\[*?])",
    re.DOTALL,
)
_RANGE = re.compile(rf"({_ITEM})(?:-({_ITEM}))?", re.DOTALL)
_NONE, _ANY = "(?!)", "."


@lru_cache(maxsize=64)
def compiled(pattern: str) -> re.Pattern[str] | None:
    """What to match a whole name with; None for a pattern that is malformed, which matches nothing
    in Go.
    """
    segments, at = [""], 0
    while at < len(pattern):
        found = _TOKEN.match(pattern, at)
        if found is None:
            return None
        at = found.end()
        if found["stars"]:
            segments.append("")
        else:
            segments[-1] += _one(found)
    if len(segments) == 1:
        return re.compile(segments[0], re.DOTALL)
    first, *middle, last = segments
    # A segment has one length, so that its first place is as good as any: without going back, no
    # pattern takes long.
    between = "".join(f"(?>[^/]*?{segment})" for segment in middle)
    return re.compile(f"{first}{between}[^/]*{last}", re.DOTALL)


def matches(pattern: str, name: str) -> bool:
    """Does the pattern stand for the whole name?"""
    found = compiled(pattern)
    return found is not None and found.fullmatch(name) is not None


def _one(found: re.Match[str]) -> str:
    """The expression for one character."""
    if found["one"]:
        return "[^/]"
    if not found["ranges"]:
        return re.escape(found["escaped"] or found["plain"])
    pairs = [(low[-1], (high or low)[-1]) for low, high in _RANGE.findall(found["ranges"])]
    inside = "".join(f"{re.escape(low)}-{re.escape(high)}" for low, high in pairs if low <= high)
    if not inside:
        return _ANY if found["others"] else _NONE
    return f"[{found['others']}{inside}]"
