"""How the command speaks: tables for people, JSON lines for machines, errors with a remedy, exit
codes that mean something.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from shared.telemetry.logs import scrub_text

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_REJECTED = 3
EXIT_LEFT = 4
"""0 done; 1 the check found something or the command failed; 2 wrong usage; 3 a kubelet rejected a pod; 4 a feasible pod
was left."""

PIPE_COLUMNS = 240
"""A table's width where nobody looks: no cell is folded, so that lines can be searched and cut."""


class CommandError(Exception):
    """What went wrong, what to do about it, and the exit code."""

    def __init__(self, problem: str, remedy: str = "", exit_code: int = EXIT_FAILED) -> None:
        super().__init__(problem)
        self.problem, self.remedy, self.exit_code = problem, remedy, exit_code


def complain(error: CommandError) -> None:
    """Two lines on stderr: what is wrong, and what to try."""
    remedy = error.remedy or "topolog --help"
    if remedy[1:2].islower():
        remedy = remedy[0].lower() + remedy[1:]
    print(f"topolog: {scrub_text(error.problem.removesuffix('.'))}", file=sys.stderr)
    print(f"  try: {remedy}", file=sys.stderr)


def json_line(value: Any) -> None:
    """One JSON value on a line of its own, out at once: a follower behind a pipe sees it."""
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")
    sys.stdout.flush()


def is_screen() -> bool:
    """Whether standard output is a terminal that can move its cursor (TERM=dumb cannot)."""
    return sys.stdout.isatty() and os.environ.get("TERM", "") not in ("", "dumb", "unknown")


def console() -> Console:
    """For tables and styled lines: as wide as the terminal; wide and without styles elsewhere.
    NO_COLOR is heeded (rich).
    """
    if sys.stdout.isatty():
        return Console(soft_wrap=True, highlight=False)
    return Console(soft_wrap=True, highlight=False, width=PIPE_COLUMNS, no_color=True)


def columns() -> int:
    """The width of the terminal, or that of a pipe."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else PIPE_COLUMNS


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """A table of text cells; a column whose name starts with `#` is right-aligned."""
    made = Table(
        title=title or None, title_justify="left", box=None, pad_edge=False, header_style="bold"
    )
    for column in columns:
        made.add_column(
            column.removeprefix("#"),
            justify="right" if column.startswith("#") else "left",
            overflow="fold",
        )
    for row in rows:
        made.add_row(*row)
    return made
