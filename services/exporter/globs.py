"""Shell patterns in the format of Go's filepath.Match, which RTE's podExclude uses.

Python's fnmatch differs: there `[^a]` is `^` or `a`, and a backslash is a plain backslash. Pure.
Source: path/filepath/match.go.
"""

from __future__ import annotations

import re
from functools import lru_cache

_ITEM = r"(?:\\.|[^\\\]\-])"
_TOKEN = re.compile(
    rf"(?P<stars>\*+)|(?P<single>\?)"
    rf"|\[(?P<negated>\^?+)(?P<ranges>(?:{_ITEM}(?:-{_ITEM})?)+)\]"
    rf"|\\(?P<escaped>.)|(?P<plain>[^\\\[*?])",
    re.DOTALL,
)
_RANGE = re.compile(rf"({_ITEM})(?:-({_ITEM}))?", re.DOTALL)
_NONE, _ANY = "(?!)", "."


@lru_cache(maxsize=64)
def compiled(pattern: str) -> re.Pattern[str] | None:
    """Return the expression for a whole name, or None for a malformed pattern.

    In Go a malformed pattern matches nothing.
    """
    segments, position = [""], 0
    while position < len(pattern):
        token = _TOKEN.match(pattern, position)
        if token is None:
            return None
        position = token.end()
        if token["stars"]:
            segments.append("")
        else:
            segments[-1] += _character(token)
    if len(segments) == 1:
        return re.compile(segments[0], re.DOTALL)
    first, *middle, last = segments
    # A segment has a fixed length, so its first match is as good as any later one. Atomic groups
    # prevent backtracking, so no pattern takes long.
    between = "".join(f"(?>[^/]*?{segment})" for segment in middle)
    return re.compile(f"{first}{between}[^/]*{last}", re.DOTALL)


def matches(pattern: str, name: str) -> bool:
    """Return True if the pattern matches the whole name."""
    expression = compiled(pattern)
    return expression is not None and expression.fullmatch(name) is not None


def _character(token: re.Match[str]) -> str:
    if token["single"]:
        return "[^/]"
    if not token["ranges"]:
        return re.escape(token["escaped"] or token["plain"])
    pairs = [(low[-1], (high or low)[-1]) for low, high in _RANGE.findall(token["ranges"])]
    inside = "".join(f"{re.escape(low)}-{re.escape(high)}" for low, high in pairs if low <= high)
    if not inside:
        return _ANY if token["negated"] else _NONE
    return f"[{token['negated']}{inside}]"
