"""Near matches of a name that does not exist. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

NEAR = 3


def near(wanted: str, candidates: Iterable[str]) -> list[str]:
    """Return up to three similar names: those that contain it, else those with similar spelling,
    best first.
    """
    names = sorted(set(candidates))
    holding = [name for name in names if wanted and wanted.lower() in name.lower()]
    if holding:
        return holding[:NEAR]
    tails = {name.rpartition("/")[2]: name for name in reversed(names)}
    alike = difflib.get_close_matches(wanted, names, NEAR, 0.5)
    alike += [
        tails[tail]
        for tail in difflib.get_close_matches(wanted.rpartition("/")[2], tails, NEAR, 0.5)
    ]
    return list(dict.fromkeys(alike))[:NEAR]


def did_you_mean(wanted: str, candidates: Iterable[str]) -> str:
    """Return `; did you mean a, b?`, or nothing."""
    matches = near(wanted, candidates)
    return f"; did you mean {' or '.join(matches)}?" if matches else ""
