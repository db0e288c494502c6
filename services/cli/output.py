"""Print results: tables and lines for people, JSON lines for programs, errors with a remedy.

Everything that a command prints goes through this module, which escapes control characters. Exit
codes are declared here.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from typing import IO, TYPE_CHECKING, Any

import msgspec
from rich.cells import cell_len

from shared.telemetry.printable import printable
from shared.telemetry.scrubbing import scrub_text

if TYPE_CHECKING:  # only tables that are folded, and bold lines, wait for rich
    from rich.console import Console, RenderableType
    from rich.table import Table

# 0 success; 1 the check failed, or the command could not do its work; 2 wrong usage; 3 a kubelet
# rejected a pod; 4 a feasible pod did not run.
EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_REJECTED = 3
EXIT_LEFT = 4

# Width of a table in a pipe: no cell is folded, so that lines can be searched and cut.
PIPE_COLUMNS = 240
# JSON escapes C0 controls only. C1 controls and DEL act on a terminal, too.
_C1 = re.compile("[\x7f-\x9f]")


class CommandError(Exception):
    """A problem, its remedy, and the exit code. `details` are lines of a log."""

    def __init__(
        self,
        problem: str,
        remedy: str = "",
        exit_code: int = EXIT_FAILED,
        details: Sequence[str] = (),
    ) -> None:
        super().__init__(problem)
        self.problem, self.remedy, self.exit_code = problem, remedy, exit_code
        self.details = tuple(details)


def complain(error: CommandError) -> None:
    """Print problem, details and remedy to stderr. Each is one line, so that a line break in a
    message of others cannot imitate a remedy.
    """
    remedy = error.remedy or "topolog --help"
    if remedy[1:2].islower():
        remedy = remedy[0].lower() + remedy[1:]
    say(f"topolog: {scrub_text(error.problem.removesuffix('.'))}", to=sys.stderr)
    for line in error.details:
        say(f"  | {scrub_text(line)}", to=sys.stderr)
    say(f"  try: {remedy}", to=sys.stderr)


def say(text: str = "", *, bold: bool = False, to: IO[str] | None = None) -> None:
    """Print one line at once. A line break in `text` is escaped like any control character."""
    line = printable(text)
    if bold and to is None and sys.stdout.isatty():
        console().print(line, style="bold", markup=False)
    else:
        print(line, file=to or sys.stdout, flush=True)


def say_verbatim(text: str) -> None:
    """Print text of several lines that Topolog composed itself: YAML, a completion script."""
    for line in text.removesuffix("\n").split("\n"):
        say(line)


def say_table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table of text cells. If it fits, its lines are made here: rich, which would fold long
    cells, takes 0.1 ms for each cell.
    """
    cells = [[printable(cell) for cell in row] for row in rows]
    lines = _aligned(names, cells)
    if any(cell_len(line) > columns() for line in lines):
        console().print(table(names, cells))
        return
    say(lines[0], bold=True)
    sys.stdout.write("".join(f"{line}\n" for line in lines[1:]))
    sys.stdout.flush()


def _aligned(names: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table: names, then rows, in columns two spaces apart."""
    listed = [[name.removeprefix("#") for name in names], *rows]
    widths = [max(map(cell_len, column)) for column in zip(*listed, strict=True)]
    lines = []
    for row in listed:
        cells = []
        for name, cell, width in zip(names, row, widths, strict=True):
            space = " " * (width - cell_len(cell))
            cells.append(space + cell if name.startswith("#") else cell + space)
        lines.append("  ".join(cells).rstrip())
    return lines


def show(renderable: RenderableType) -> None:
    """Print a renderable of escaped text."""
    console().print(renderable)


def json_line(value: Any) -> None:
    """Print one JSON value on one line at once, so that a follower behind a pipe sees it."""
    text = msgspec.json.encode(value).decode()
    sys.stdout.write(_C1.sub(lambda match: f"\\u{ord(match.group()):04x}", text) + "\n")
    sys.stdout.flush()


def is_screen() -> bool:
    """Return whether stdout is a terminal that can move its cursor (TERM=dumb cannot)."""
    return sys.stdout.isatty() and os.environ.get("TERM", "") not in ("", "dumb", "unknown")


def console() -> Console:
    """Return a console as wide as the terminal, or wide and without styles in a pipe. Rich obeys
    NO_COLOR.
    """
    from rich.console import Console

    if sys.stdout.isatty():
        return Console(soft_wrap=True, highlight=False)
    return Console(soft_wrap=True, highlight=False, width=PIPE_COLUMNS, no_color=True)


def columns() -> int:
    """Return the width of the terminal, or that of a pipe."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else PIPE_COLUMNS


def table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """Return a table of text cells; a `#` before a column name aligns it to the right."""
    from rich.table import Table
    from rich.text import Text

    result = Table(box=None, pad_edge=False, header_style="bold")
    for name in names:
        result.add_column(
            name.removeprefix("#"),
            justify="right" if name.startswith("#") else "left",
            overflow="fold",
        )
    for row in rows:
        result.add_row(*(Text(printable(cell)) for cell in row))
    return result
