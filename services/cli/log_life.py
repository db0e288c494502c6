"""`topolog log import | archive | redact | status`: options in, rows out. `services.upkeep` does
the work.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from services.cli.addresses import data_dir_option, database_option
from services.cli.log import Database, DataDir, Json, log_app, run, user_name
from services.cli.log_source import LogSource
from services.cli.output import EXIT_USAGE, CommandError, json_line, say, say_table
from services.cli.paths import archive_here, archive_option, path_argument
from services.cli.progress import progress_bar
from services.replay.filters import clock
from services.upkeep.errors import UpkeepRefused
from shared.domain.quantity import QuantityError, amount
from shared.domain.resources import MEMORY
from shared.eventlog.port import EventLog

if TYPE_CHECKING:
    from services.upkeep.archiving import Archived
    from services.upkeep.pruning import Pruned
    from shared.eventlog.archive_place import Place
    from shared.eventlog.postgres_care import Status

# The tables of the log that grow, in the user's words.
WHAT = {
    "fact": "events in rows",
    "archived_block": "archived events, in compressed blocks",
    "archived_stream": "index of archived streams",
    "commit_seen": "commit ids, to recognize retries",
    "stream_head": "versions of streams",
    "snapshot": "snapshots of projections",
    "older_snapshot": "older snapshots, for questions about the past",
    "projection_mark": "marks of projections",
    "pod_name": "index of pods by name",
    "pruned_stream": "versions of pruned streams",
}


@log_app.command("import")
def import_command(
    file: Annotated[Path, path_argument("Whole history, as written by `topolog log export`.")],
    database_url: Annotated[
        str, database_option("URL of an empty database, with the owner's login.")
    ] = "",
    data_dir: Annotated[
        Path | None, data_dir_option("Data folder for `topolog up`; created if missing.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Import an exported history into an empty database, on a new timeline.

    Services then fold it and list the cluster. The file is verified while it is read. An
    interrupted import leaves the log empty, and the same command starts again from the begin.
    """
    from services.upkeep.importing import Imported, import_history
    from shared.eventlog.history_file import HistoryFileError, header_of

    if not database_url and data_dir is None:
        raise CommandError(
            "no database is given",
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
        imported = asyncio.run(fill())
    except UpkeepRefused as refused:
        raise CommandError(refused.problem, refused.remedy) from refused
    if as_json:
        json_line({"log_id": imported.log_id, "timeline": imported.timeline, "last": imported.last})
    else:
        say(
            f"imported positions 1 to {imported.last} of log {imported.log_id}, "
            f"on timeline {imported.timeline}"
        )


@log_app.command("redact")
def redact_command(
    pod: Annotated[
        str,
        typer.Argument(help="Pod uid, name or namespace/name; all pods of that name must be over."),
    ],
    reason: Annotated[str, typer.Option(help="Reason; kept in the log.")],
    database_url: Database = "",
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Mask the name, labels and annotations of an ended pod everywhere in the log.

    Positions, versions and the hash chain stay, and the log records the redaction. Pods of the same
    name, as of a StatefulSet, are masked together, because reports list pods by name only. Needs
    the owner's login. Copies outside the database (bus, backups, exports) are not reached.
    """
    from services.upkeep.redacting import Redacted, mask_everywhere, redact

    source = LogSource(database_url, data_dir, writes=True)

    async def apply(log: EventLog) -> list[Redacted]:
        everywhere = partial(mask_everywhere, source.url, log, archive=archive_here())
        return await redact(log, pod, user_name(), reason[:500], time.time_ns() // 1000, everywhere)

    for redacted in run(source, apply):
        if as_json:
            json_line(redacted)
            continue
        count = len(redacted.uids)
        pods = f"{count} pods of one name" if count > 1 else f"pod {redacted.uids[0]}"
        say(f"{redacted.rows} events of {pods} are redacted; the name is now {redacted.name}")


@log_app.command("checkpoint")
def checkpoint_command(
    database_url: Database = "", data_dir: DataDir = None, as_json: Json = False
) -> None:
    """Write checkpoints of the head, from which services of any release start.

    Services write one every 25,000 to 200,000 positions. Useful before an update, and after a
    redaction, which deletes all snapshots and checkpoints.
    """
    from services.upkeep.checkpointing import checkpoint

    for kept in run(LogSource(database_url, data_dir, writes=True), checkpoint):
        if as_json:
            json_line(kept)
        else:
            say(f"{kept.projection} has a checkpoint at position {kept.position}")


@log_app.command("archive")
def archive_command(
    to: Annotated[
        str, archive_option("Also write each partition to a checked file in this folder or bucket.")
    ] = "",
    older_than: Annotated[str, typer.Option(help="Archive only older partitions: 30d.")] = "",
    keep: Annotated[
        str, typer.Option(help="Archive only while rows use more space than this: 20GiB.")
    ] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only print what would be archived.")
    ] = False,
    database_url: Database = "",
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Compress old rows, which every consumer has read, to about a quarter of their size.

    Compressed events stay in the database and readable, because every replay begins with the first
    one. Safe to interrupt, and to run as a CronJob. Needs topolog_keeper's or the owner's login.
    """
    from services.upkeep.archiving import Archived, Limits, archive, due
    from shared.eventlog import postgres_care as care

    limits = Limits(_days(older_than), _bytes(keep))
    source = LogSource(database_url, data_dir, writes=True)

    async def apply(log: EventLog) -> list[Archived]:
        if not dry_run:
            await care.require_keeper(source.url)
        partitions = due(await care.status(source.url), limits, time.time_ns() // 1000)
        if dry_run:
            return [Archived(partition.first, partition.last, "") for partition in partitions]
        return await archive(
            log,
            partitions,
            _place(to) if to else None,
            lambda partition: care.archive(source.url, partition),
        )

    _print_done(
        run(source, apply),
        "would be archived" if dry_run else "are archived",
        "nothing to archive: no full partition is old enough and read by every consumer; "
        "see topolog log status",
        as_json,
    )


def _place(to: str) -> Place:
    """Return the place of the archive. Raises CommandError."""
    from shared.eventlog.archive_place import place_of, trouble

    problem = trouble(to) if to else "is missing"
    if problem:
        raise CommandError(f"--to {to!r} {problem}", "--to FOLDER, or TOPOLOG_ARCHIVE", EXIT_USAGE)
    return place_of(to)


def _print_done(done: Sequence[Archived | Pruned], verb: str, nothing: str, as_json: bool) -> None:
    for partition in done:
        if as_json:
            json_line(partition)
            continue
        file = f", and written to {partition.file}" if partition.file else ""
        say(f"positions {partition.first} to {partition.last} {verb}{file}")
    if not done and not as_json:
        say(nothing)


@log_app.command("prune")
def prune_command(
    to: Annotated[
        str, archive_option("Folder or bucket of the archive's files: all from position 1 on.")
    ] = "",
    older_than: Annotated[
        str, typer.Option(help="Prune only older partitions; at least 7d.")
    ] = "90d",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only print what would be pruned.")
    ] = False,
    database_url: Database = "",
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Remove archived events from the database once files have them.

    Missing files are written first. Replay reads them where they were written, or where
    TOPOLOG_ARCHIVE says; services begin from checkpoints and need them only to fold from the
    beginning. Safe to interrupt, and to run as a CronJob. Needs topolog_keeper's or the owner's
    login.
    """
    from services.upkeep.pruning import Pruned, due, prune
    from shared.eventlog import postgres_pruning

    source = LogSource(database_url, data_dir, writes=True)

    async def apply(log: EventLog) -> list[Pruned]:
        prunable = await postgres_pruning.prunable(source.url)
        ranges = await due(log, prunable, _days(older_than), time.time_ns() // 1000)
        if dry_run:
            return [Pruned(part.first, part.last, "") for part in ranges]
        drop = partial(postgres_pruning.prune, source.url)
        return await prune(log, prunable, ranges, _place(to), drop)

    _print_done(
        run(source, apply),
        "would be pruned" if dry_run else "are pruned",
        "nothing to prune: no archived partition is old enough and passed by every consumer, "
        "with a checkpoint after it; see topolog log status",
        as_json,
    )


@log_app.command("status")
def status_command(
    database_url: Database = "", data_dir: DataDir = None, as_json: Json = False
) -> None:
    """Show the size of the log, what is archived, and which consumer delays archiving.

    A reader's login is enough (topolog_viewer); archiving needs topolog_keeper's.
    """
    from shared.eventlog import postgres_care as care

    source = LogSource(database_url, data_dir)
    if (file := source.file()) is not None:
        remedy = (
            f"topolog replay verify --database-url {file}; "
            "or --database-url postgresql://USER@HOST/DATABASE"
        )
        raise CommandError(
            f"{file} is an exported history, which has no archive", remedy, EXIT_USAGE
        )

    async def look(_: EventLog) -> Status:
        return await care.status(source.url)

    status = run(source, look)
    if as_json:
        json_line(status)
        return
    for line in _lines(status):
        say(line)
    postgres_bytes = status.bytes - sum(status.tables.values())
    sizes = [
        (WHAT[name], f"{status.tables[name] / 1e6:,.1f}") for name in WHAT if name in status.tables
    ]
    say_table(
        ("space used by", "#MB"), [*sizes, ("Postgres itself", f"{postgres_bytes / 1e6:,.1f}")]
    )
    rows = [
        (
            partition.name,
            str(partition.first),
            str(partition.last),
            f"{partition.bytes / 1e6:,.1f}",
            clock(partition.newest_us)[:19] if partition.full else "open",
        )
        for partition in status.partitions
    ]
    say_table(("partition", "#first", "#last", "#MB", "full since"), rows)


def _lines(status: Status) -> Iterator[str]:
    yield (
        f"log {status.log_id}, timeline {status.timeline}, positions 1 to {status.head}, "
        f"{status.bytes / 1e6:,.1f} MB in total"
    )
    if status.archived_to:
        yield (
            f"positions 1 to {status.archived_to} are archived, "
            f"in {status.archived_bytes / 1e6:,.1f} MB"
        )
    if status.pruned_to:
        yield f"positions 1 to {status.pruned_to} are pruned, and in files only"
    for consumer, position in sorted(status.checkpoints.items()):
        yield f"{consumer} is at {position}, {status.head - position} behind the head"
    yield f"nothing above position {status.lowest} can be archived yet"


def _days(text: str) -> float:
    try:
        days = float(text.strip().removesuffix("d")) if text else 0.0
    except ValueError:
        raise CommandError(
            f"--older-than {text!r} is no number of days", "--older-than 30d", EXIT_USAGE
        ) from None
    if text and not 0 < days < math.inf:
        remedy = "--older-than 30d; leave it out to archive regardless of age"
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
        remedy = "--keep 20GiB; leave it out to archive regardless of size"
        raise CommandError(f"--keep {text!r} is no size above 0", remedy, EXIT_USAGE)
    return size
