"""How the command speaks: tables for people, JSON lines for machines, errors with a remedy, exit codes that mean something."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_REJECTED = 3
EXIT_LEFT = 4
"""0 done; 1 the check found something or the command failed; 2 wrong usage; 3 a kubelet rejected a pod; 4 a feasible pod
was left."""


class CommandError(Exception):
    """What went wrong, what to do about it, and the exit code."""

    def __init__(self, problem: str, remedy: str = "", exit_code: int = EXIT_FAILED) -> None:
        super().__init__(problem)
        self.problem, self.remedy, self.exit_code = problem, remedy, exit_code


def complain(error: CommandError) -> None:
    """One or two lines on stderr."""
    print(f"topolog: {error.problem}", file=sys.stderr)
    if error.remedy:
        print(f"  try: {error.remedy}", file=sys.stderr)


def json_line(value: Any) -> None:
    """One JSON value on a line of its own."""
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")


def console() -> Console:
    """For tables; plain text when stdout is not a terminal."""
    return Console(soft_wrap=True, highlight=False)


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """A table of text cells; a column whose name starts with `#` is right-aligned."""
    made = Table(title=title or None, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for column in columns:
        made.add_column(column.removeprefix("#"), justify="right" if column.startswith("#") else "left", overflow="fold")
    for row in rows:
        made.add_row(*row)
    return made
