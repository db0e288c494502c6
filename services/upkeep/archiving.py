"""`topolog log archive`: full partitions behind every consumer become files and compressed blocks,
without loss for any reader.

A partition is first written to a verified file, then its rows are replaced with blocks in the
database, in one transaction. Readers, including services that start cold, read on as before. After
an interruption the same command continues.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from services.upkeep.errors import UpkeepRefused
from services.upkeep.exporting import export
from shared.eventlog.archive_folder import file_name
from shared.eventlog.history_file import HistoryFileError, checked
from shared.eventlog.port import EventLog
from shared.eventlog.postgres_care import Partition, Status

DAY_US = 86_400 * 1_000_000


class Limits(msgspec.Struct, frozen=True):
    """The events to keep as rows: those younger than `older_than_days`, and the newest
    `keep_bytes`. 0 disables a limit; without limits everything possible is archived.
    """

    older_than_days: float = 0.0
    keep_bytes: int = 0


class Archived(msgspec.Struct, frozen=True):
    """One archived partition; `file` is "" if no file was requested."""

    first: int
    last: int
    file: str


def due(status: Status, limits: Limits, now_us: int) -> list[Partition]:
    """Return the partitions to archive, oldest first: full ones below every consumer. Pure."""
    partitions, bytes_left = [], sum(partition.bytes for partition in status.partitions)
    for partition in status.partitions:
        if not partition.full or partition.last >= status.lowest:
            break
        old = (
            limits.older_than_days > 0
            and now_us - partition.newest_us >= limits.older_than_days * DAY_US
        )
        large = limits.keep_bytes > 0 and bytes_left > limits.keep_bytes
        if not (old or large or limits == Limits()):
            break
        partitions.append(partition)
        bytes_left -= partition.bytes
    return partitions


async def archive(
    log: EventLog,
    partitions: list[Partition],
    folder: Path | None,
    drop: Callable[[Partition], Awaitable[None]],
) -> list[Archived]:
    """Archive these partitions one by one; `drop` turns rows into blocks. Raises UpkeepRefused."""
    done = []
    for partition in partitions:
        file = folder / file_name(partition.first, partition.last) if folder is not None else None
        if file is not None:
            await export(log, file, partition.first, partition.last)
            read_back(file)
        await drop(partition)
        done.append(Archived(partition.first, partition.last, str(file or "")))
    return done


def read_back(file: Path) -> None:
    """Read a whole file that was just written. Raises UpkeepRefused."""
    # Rows are only dropped for a file that can be read back.
    try:
        for _ in checked(file):
            pass
    except HistoryFileError as error:
        raise UpkeepRefused(
            f"the file that was just written cannot be read: {error}",
            "check the disk; nothing was archived",
        ) from error
