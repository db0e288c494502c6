"""What was probably meant: near matches of a name that is not there. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

NEAR = 3


def near(wanted: str, known: Iterable[str]) -> list[str]:
    """Up to three names like the wanted one: those that contain it, else those that are spelled
    alike, best first.
    """
    names = sorted(set(known))
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


def did_you_mean(wanted: str, known: Iterable[str]) -> str:
    """`; did you mean a, b?`, or nothing."""
    found = near(wanted, known)
    return f"; did you mean {' or '.join(found)}?" if found else ""
