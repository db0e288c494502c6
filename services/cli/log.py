"""`topolog log ...`: options in, rows out. `services.upkeep` changes the log."""

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
from services.cli.output import EXIT_FAILED, EXIT_USAGE, CommandError, json_line, say
from services.cli.paths import path_option
from services.cli.progress import progress_bar
from services.cli.verbs import group
from services.cli.window import From, To
from services.replay.filters import FilterError, UnknownPod
from services.upkeep.errors import UpkeepRefused
from shared.eventlog.port import EventLog

T = TypeVar("T")

log_app = group("Administer the event log: export, import, archive, redact.")

Database = Annotated[str, database_option()]
DataDir = Annotated[Path | None, data_dir_option()]
Json = Annotated[bool, typer.Option("--json", help="Print JSON lines.")]


def register(app: typer.Typer) -> None:
    """Mount the verbs of this file and of `log_life`."""
    app.add_typer(log_app, name="log")


def run(source: LogSource, use: Callable[[EventLog], Awaitable[T]]) -> T:
    """Open the log, run `use` on it, close it. A refusal becomes one problem and one remedy."""

    async def session() -> T:
        async with source as log:
            return await use(log)

    try:
        return asyncio.run(session())
    except UpkeepRefused as refused:
        raise CommandError(refused.problem, refused.remedy) from refused
    except FilterError as error:
        exit_code = EXIT_FAILED if isinstance(error, UnknownPod) else EXIT_USAGE
        raise CommandError(str(error), error.remedy or "topolog log --help", exit_code) from error


@log_app.command("skip")
def skip_command(
    position: Annotated[
        int,
        typer.Argument(
            help="Position of the event, as in health, verify and replay.", min=1, max=2**63 - 1
        ),
    ],
    reason: Annotated[str, typer.Option(help="Reason; kept in the log.")],
    database_url: Database = "",
    data_dir: DataDir = None,
    force: Annotated[bool, typer.Option("--force", help="Skip a readable event, too.")] = False,
    as_json: Json = False,
) -> None:
    """Skip an event that cannot be read, so that its quarantined stream is followed again.

    Every service then folds the log again without that event. Nothing is removed.
    """
    from services.upkeep.skipping import skip

    now_us = time.time_ns() // 1000
    row, skip_position = run(
        LogSource(database_url, data_dir, writes=True),
        lambda log: skip(log, position, user_name(), reason[:500], now_us, force),
    )
    if as_json:
        json_line(
            {
                "skipped": position,
                "type": row.type,
                "stream": row.stream,
                "position": skip_position,
            }
        )
    else:
        say(
            f"event {position} ({row.type} on {row.stream}) is skipped (position {skip_position}); "
            "services fold the log again"
        )


@log_app.command("export")
def export_command(
    out: Annotated[
        Path, path_option("--out", help="File to write, by convention FILE.topolog.gz.")
    ],
    database_url: Database = "",
    data_dir: DataDir = None,
    from_: From = None,
    to: To = None,
    as_json: Json = False,
) -> None:
    """Export the log, or a range of it, to one compressed file with a checksum.

    Replay commands read a whole history as --database-url FILE, and `topolog log import` restores
    a log from it. A file with --from is a piece, for example an incremental backup: replay reads it
    in a folder together with the pieces before it, and import does not accept it. An interrupted
    export leaves FILE as it was. FILE is a regular file, not a device or pipe; a link is followed.
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
        return
    is_large = written.bytes >= 1e5
    size = f"{written.bytes / 1e6:,.1f} MB" if is_large else f"{written.bytes:,} bytes"
    say(
        f"exported positions {written.first} to {written.last} to {written.file} "
        f"({size}, sha256 {written.sha256[:16]}...)"
    )


@log_app.command("begin-timeline")
def begin_timeline_command(
    database_url: Database = "", data_dir: DataDir = None, as_json: Json = False
) -> None:
    """Start a new timeline after a restore that the log cannot detect itself.

    Services then fold the log again and list the cluster again, and every lease ends. Needs the
    owner's login. A log that lost events and was written to afterwards is detected without this.
    """
    now_us = time.time_ns() // 1000
    identity = run(
        LogSource(database_url, data_dir, writes=True), lambda log: log.begin_timeline(now_us)
    )
    if as_json:
        json_line(identity)
    else:
        say(
            f"log {identity.log_id} is on timeline {identity.timeline}; "
            "services fold it again and list the cluster"
        )


def user_name() -> str:
    """Return the name of the current user, "" if the system does not know it."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""
