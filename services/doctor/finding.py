"""A finding of `topolog doctor`: an observation, its severity, and the remedy."""

from __future__ import annotations

from typing import Literal

import msgspec

# With a problem something does not work. With a warning it will not, or may not. A note is a
# figure.
Severity = Literal["problem", "warning", "note"]


class Finding(msgspec.Struct, frozen=True):
    """`about` names the part: database, bus, cluster, log, or node NAME. `remedy` is a command, or
    a sentence if no command helps.
    """

    severity: Severity
    about: str
    seen: str
    remedy: str = ""


def problem(about: str, seen: str, remedy: str) -> Finding:
    """Report something that does not work."""
    return Finding("problem", about, seen, remedy)


def warning(about: str, seen: str, remedy: str) -> Finding:
    """Report something that may soon not work, or that works worse than it could."""
    return Finding("warning", about, seen, remedy)


def note(about: str, seen: str) -> Finding:
    """Report a figure, or a check that was left out."""
    return Finding("note", about, seen)
