"""A finding: what was seen, how bad it is, and the command that mends it."""

from __future__ import annotations

from typing import Literal

import msgspec

Severity = Literal["problem", "warning", "note"]
"""A problem keeps something from working; a warning will, or may; a note is a figure worth knowing."""


class Finding(msgspec.Struct, frozen=True):
    """`about` names the part: database, bus, cluster, node NAME. `mend` is a command, or where no
    command can, a sentence.
    """

    severity: Severity
    about: str
    seen: str
    mend: str = ""


def problem(about: str, seen: str, mend: str) -> Finding:
    """Something does not work."""
    return Finding("problem", about, seen, mend)


def warning(about: str, seen: str, mend: str) -> Finding:
    """Something may soon not work, or works worse than it could."""
    return Finding("warning", about, seen, mend)


def note(about: str, seen: str) -> Finding:
    """A figure."""
    return Finding("note", about, seen)
