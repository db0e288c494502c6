"""`topolog log import | archive | redact | status`: the life of a log. Options in, rows out; done
by `services.upkeep`.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from services.cli.addresses import data_dir_option, database_option
from services.cli.log import Database, DataDir, Json, log_app, run, who
from services.cli.log_source import LogSource
from services.cli.output import EXIT_USAGE, CommandError, console, json_line, table
from services.cli.progress import progress_bar
from services.replay.filters import clock
from services.upkeep.errors import UpkeepRefused
from shared.domain.quantity import QuantityError, amount
from shared.domain.resources import MEMORY
from shared.eventlog.port import EventLog

if TYPE_CHECKING:
    from shared.eventlog.postgres_care import Status

WHAT = {
    "fact": "facts in rows",
    "archived_block": "archived facts, in compressed blocks",
    "archived_stream": "which block holds what of a stream",
    "commit_seen": "ids of commits, by which a retry is known",
    "stream_head": "versions of streams",
    "snapshot": "snapshots of folds",
    "projection_mark": "marks of folds",
}
"""The tables of the log that grow, in a person's words."""


@log_app.command("import")
def import_command(
    file: Annotated[
        Path, typer.Argument(help="A whole history, as `topolog log export` wrote it.")
    ],
    database_url: Annotated[
        str, database_option("An empty database, with its owner's login.")
    ] = "",
    data_dir: Annotated[
        Path | None, data_dir_option("A data folder for `topolog up`, made where it is not there.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Make an empty database the log of an exported history, on a new timeline.

    Services then fold it anew and list the cluster. The file is checked while it is read. All or
    nothing: an interruption leaves the log empty, whenever it comes, and the same command again
    begins anew.
    """
    from services.upkeep.importing import Imported, import_history
    from shared.eventlog.history_file import HistoryFileError, header_of

    if not database_url and data_dir is None:
        raise CommandError(
            "no database is named",
            "--database-url postgresql://OWNER@HOST/EMPTY, or --data-dir",
            EXIT_USAGE,
        )

    async def fill() -> Imported:
        try:
            total = header_of(file).last
        except HistoryFileError as error:
            raise UpkeepRefused(str(error), "topolog log export --out FILE writes one") from error
        async with LogSource(database_url, data_dir, writes=True).database() as url:
            with progress_bar("importing", total, not as_json) as advance:
                return await import_history(url, file, time.time_ns() // 1000, advance)

    try:
        done = asyncio.run(fill())
    except UpkeepRefused as refused:
        raise CommandError(refused.problem, refused.remedy) from refused
    if as_json:
        json_line({"log_id": done.log_id, "timeline": done.timeline, "last": done.last})
    else:
        print(
            f"positions 1 to {done.last} of log {done.log_id} stand in the database, on timeline {done.timeline}"
        )


@log_app.command("redact")
def redact_command(
    pod: Annotated[
        str,
        typer.Argument(help="Pod uid, name or namespace/name; all of that name must have ended."),
    ],
    reason: Annotated[str, typer.Option(help="Why; kept in the log.")],
    database_url: Database = "",
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Mask the name, labels and annotations of a pod that ended, wherever the log holds them.

    Positions, versions and the hash chain stay, and the log says what was masked. Pods that had one
    name, as those of a StatefulSet, are masked together: reports list pods by name alone. Needs the
    owner's login. Copies that are not in the database (the bus until it forgets, backups, exports)
    are not reached.
    """
    from services.upkeep.redacting import Redacted, redact
    from shared.eventlog.postgres_care import mask

    source = LogSource(database_url, data_dir, writes=True)

    async def apply(log: EventLog) -> list[Redacted]:
        return await redact(
            log, pod, who(), reason[:500], time.time_ns() // 1000, partial(mask, source.url)
        )

    for done in run(source, apply):
        if as_json:
            json_line(done)
        else:
            whose = (
                f"{len(done.uids)} pods of one name"
                if len(done.uids) > 1
                else f"pod {done.uids[0]}"
            )
            print(
                f"{done.rows} facts of {whose} are redacted; the name is {done.name} from the beginning on"
            )


@log_app.command("archive")
def archive_command(
    to: Annotated[
        Path | None,
        typer.Option("--to", help="Also write each partition to a checked file in this folder."),
    ] = None,
    older_than: Annotated[str, typer.Option(help="Only what is older, in days: 30d.")] = "",
    keep: Annotated[
        str, typer.Option(help="Only as long as rows take more than this: 20GiB.")
    ] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would go.")] = False,
    database_url: Database = "",
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Compress rows that are full, old and behind every consumer to about a quarter of their size;
    readers notice nothing.

    Compressed facts stay in the database, as every replay begins with the first one. Safe to
    interrupt, and to run by a CronJob. Needs the owner's login.
    """
    from services.upkeep.archiving import Archived, Limits, archive, due
    from shared.eventlog import postgres_care as care

    limits = Limits(_days(older_than), _bytes(keep))
    source = LogSource(database_url, data_dir, writes=True)

    async def apply(log: EventLog) -> list[Archived]:
        if not dry_run:
            await care.require_owner(source.url)
        partitions = due(await care.status(source.url), limits, time.time_ns() // 1000)
        if dry_run:
            return [Archived(each.first, each.last, "") for each in partitions]
        return await archive(
            log, partitions, to, lambda partition: care.archive(source.url, partition)
        )

    done = run(source, apply)
    for each in done if as_json else ():
        json_line(each)
    if not as_json:
        verb = "would go" if dry_run else "are archived"
        for each in done:
            print(
                f"positions {each.first} to {each.last} {verb}"
                + (f", and stand in {each.file}" if each.file else "")
            )
        if not done:
            print(
                "nothing to archive: no full partition is old enough and behind every consumer; see topolog log status"
            )


@log_app.command("status")
def status_command(
    database_url: Database = "", data_dir: DataDir = None, as_json: Json = False
) -> None:
    """Show how large the log is and what of it takes the room, what is archived, and who keeps what
    from being archived.

    A reader's login is enough (topolog_viewer); to archive is the owner's.
    """
    from shared.eventlog import postgres_care as care

    source = LogSource(database_url, data_dir)
    if (file := source.file()) is not None:
        remedy = f"topolog replay verify --database-url {file}; or --database-url postgresql://USER@HOST/DATABASE"
        raise CommandError(
            f"{file} is a history in a file, which nothing is archived of", remedy, EXIT_USAGE
        )

    async def look(_: EventLog) -> Status:
        return await care.status(source.url)

    seen = run(source, look)
    if as_json:
        json_line(seen)
        return
    out = console()
    for line in _lines(seen):
        out.print(line, markup=False)
    rest = seen.bytes - sum(seen.tables.values())
    takes = [
        (WHAT[name], f"{seen.tables[name] / 1e6:,.1f}") for name in WHAT if name in seen.tables
    ]
    out.print(
        table(
            "", ("what takes the room", "#MB"), [*takes, ("Postgres itself", f"{rest / 1e6:,.1f}")]
        )
    )
    rows = [
        (
            each.name,
            str(each.first),
            str(each.last),
            f"{each.bytes / 1e6:,.1f}",
            clock(each.newest_us)[:19] if each.full else "open",
        )
        for each in seen.partitions
    ]
    out.print(table("", ("partition", "#first", "#last", "#MB", "full since"), rows))


def _lines(seen: Status) -> Iterator[str]:
    yield f"log {seen.log_id}, timeline {seen.timeline}, positions 1 to {seen.head}, {seen.bytes / 1e6:,.1f} MB in all"
    if seen.archived_to:
        yield f"positions 1 to {seen.archived_to} are archived, in {seen.archived_bytes / 1e6:,.1f} MB"
    for consumer, position in sorted(seen.checkpoints.items()):
        yield f"{consumer} stands at {position}, {seen.head - position} behind the head"
    yield f"nothing above position {seen.lowest} may be archived yet"


def _days(text: str) -> float:
    try:
        days = float(text.strip().removesuffix("d")) if text else 0.0
    except ValueError:
        raise CommandError(
            f"--older-than {text!r} is no number of days", "--older-than 30d", EXIT_USAGE
        ) from None
    if text and not 0 < days < math.inf:
        remedy = "--older-than 30d; without it everything that may go goes"
        raise CommandError(
            f"--older-than {text!r} is no number of days above 0", remedy, EXIT_USAGE
        )
    return days


def _bytes(text: str) -> int:
    try:
        size = amount(MEMORY, text.strip().removesuffix("B")) if text else 0
    except QuantityError as error:
        raise CommandError(
            f"--keep {text!r} is no size: {error}", "--keep 20GiB", EXIT_USAGE
        ) from None
    if text and size <= 0:
        remedy = "--keep 20GiB; without it everything that may go goes"
        raise CommandError(f"--keep {text!r} is no size above 0", remedy, EXIT_USAGE)
    return size
