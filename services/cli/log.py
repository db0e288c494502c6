"""`topolog log ...`: options in, rows out. What is done to the log lives in `services.upkeep`."""

from __future__ import annotations

import asyncio
import getpass
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from services.cli import window
from services.cli.addresses import data_dir_option, database_option
from services.cli.log_source import LogSource
from services.cli.output import EXIT_USAGE, CommandError, json_line
from services.cli.progress import progress_bar
from services.cli.window import From, To
from services.replay.filters import FilterError
from services.upkeep.errors import UpkeepRefused
from shared.eventlog.port import EventLog

T = TypeVar("T")

log_app = typer.Typer(
    help="Look after the log itself: what an operator says about it becomes a fact.",
    no_args_is_help=True,
)

Database = Annotated[str, database_option()]
DataDir = Annotated[Path | None, data_dir_option()]
Json = Annotated[bool, typer.Option("--json", help="A JSON line instead of a sentence.")]


def run(source: LogSource, use: Callable[[EventLog], Awaitable[T]]) -> T:
    """Open the log, run, close; what upkeep refuses becomes one problem and one remedy."""

    async def session() -> T:
        async with source as log:
            return await use(log)

    try:
        return asyncio.run(session())
    except UpkeepRefused as refused:
        raise CommandError(refused.problem, refused.remedy) from refused
    except FilterError as error:
        raise CommandError(str(error), error.remedy or "topolog log --help", EXIT_USAGE) from error


@log_app.command("skip")
def skip_command(
    position: Annotated[
        int,
        typer.Argument(
            help="Position of the fact, as health, verify and replay name it.", min=1, max=2**63 - 1
        ),
    ],
    reason: Annotated[str, typer.Option(help="Why; kept in the log.")],
    database_url: Database = "",
    data_dir: DataDir = None,
    force: Annotated[bool, typer.Option("--force", help="Also a fact that can be read.")] = False,
    as_json: Json = False,
) -> None:
    """Count a fact as never told, so that its stream, which was set aside, goes on without it.

    Every service then folds the log anew, without that fact. Nothing is removed.
    """
    from services.upkeep.skipping import skip

    now_us = time.time_ns() // 1000
    row, at = run(
        LogSource(database_url, data_dir, writes=True),
        lambda log: skip(log, position, who(), reason[:500], now_us, force),
    )
    if as_json:
        json_line({"skipped": position, "type": row.type, "stream": row.stream, "position": at})
    else:
        print(
            f"fact {position} ({row.type} on {row.stream}) counts as never told (position {at}); services fold the log anew"
        )


@log_app.command("export")
def export_command(
    out: Annotated[
        Path, typer.Option("--out", help="The file to write; FILE.topolog.gz by convention.")
    ],
    database_url: Database = "",
    data_dir: DataDir = None,
    from_: From = None,
    to: To = None,
    as_json: Json = False,
) -> None:
    """Write the log, or a range of it, to one compressed file that carries its own hash.

    Replay reads a whole history where it takes --database-url, and `topolog log import` restores a
    log from it. A file that begins later (--from) is a piece, as for a backup of what is new:
    replay reads it in a folder with the pieces before it, import takes whole histories alone. An
    interruption leaves FILE as it was. FILE is a regular file, no device or pipe; where it is a
    link, what that leads to is replaced. One export at a time writes it.
    """
    from services.upkeep.exporting import Exported, export

    window.check(from_, to, "log export")

    async def write(log: EventLog) -> Exported:
        first, last = await window.with_events(log, from_, to)
        with progress_bar("exporting", last - first + 1, not as_json) as advance:
            return await export(
                log, out, first, last, lambda position: advance(position - first + 1)
            )

    written = run(LogSource(database_url, data_dir), write)
    if as_json:
        json_line(written)
    else:
        size = (
            f"{written.bytes / 1e6:,.1f} MB" if written.bytes >= 1e5 else f"{written.bytes:,} bytes"
        )
        print(
            f"positions {written.first} to {written.last} stand in {written.file} ({size}, sha256 {written.sha256[:16]}...)"
        )


@log_app.command("begin-timeline")
def begin_timeline_command(
    database_url: Database = "", data_dir: DataDir = None, as_json: Json = False
) -> None:
    """After a restore that the log cannot tell by itself: fold everything anew, list the cluster
    anew, end every lease.

    Needs the owner's login. A log that lost facts and went on is noticed without it.
    """
    now_us = time.time_ns() // 1000
    identity = run(
        LogSource(database_url, data_dir, writes=True), lambda log: log.begin_timeline(now_us)
    )
    if as_json:
        json_line(identity)
    else:
        print(
            f"log {identity.log_id} is on timeline {identity.timeline}; services fold it anew and list the cluster"
        )


def who() -> str:
    """Who asks, as far as the system tells."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""
