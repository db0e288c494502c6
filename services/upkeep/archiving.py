"""`topolog log archive`: full partitions behind every consumer become files and compressed blocks;
no reader loses anything.

A partition is first written to a checked file of its own, then turned into blocks that the database
keeps in place of its rows, in one transaction. Whoever reads, a service that starts cold too, reads
on as if the rows were there. Again after an interruption, it goes on where it was.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from services.upkeep.errors import UpkeepRefused
from services.upkeep.exporting import export
from shared.eventlog.history_file import SUFFIX, HistoryFileError, checked
from shared.eventlog.port import EventLog
from shared.eventlog.postgres_care import Partition, Status

DAY_US = 86_400 * 1_000_000


class Limits(msgspec.Struct, frozen=True):
    """What stays in rows: what is younger than `older_than_days`, and as much as `keep_bytes` hold.
    0 is no limit of that kind; without any limit all that may go goes."""

    older_than_days: float = 0.0
    keep_bytes: int = 0


class Archived(msgspec.Struct, frozen=True):
    """One partition that was archived; `file` is "" where none was asked for."""

    first: int
    last: int
    file: str


def due(seen: Status, limits: Limits, now_us: int) -> list[Partition]:
    """Which partitions go, oldest first: full ones, with nobody at or below their last position.
    Pure.
    """
    found, bytes_left = [], sum(partition.bytes for partition in seen.partitions)
    for partition in seen.partitions:
        if not partition.full or partition.last >= seen.lowest:
            break
        old = (
            limits.older_than_days > 0
            and now_us - partition.newest_us >= limits.older_than_days * DAY_US
        )
        large = limits.keep_bytes > 0 and bytes_left > limits.keep_bytes
        if not (old or large or limits == Limits()):
            break
        found.append(partition)
        bytes_left -= partition.bytes
    return found


async def archive(
    log: EventLog,
    partitions: list[Partition],
    folder: Path | None,
    drop: Callable[[Partition], Awaitable[None]],
) -> list[Archived]:
    """Archive these partitions one by one; `drop` turns rows into blocks. Raises UpkeepRefused."""
    done = []
    for partition in partitions:
        file = (
            folder / f"facts-{partition.first:016}-{partition.last:016}{SUFFIX}"
            if folder is not None
            else None
        )
        if file is not None:
            await export(log, file, partition.first, partition.last)
            _read_back(file)
        await drop(partition)
        done.append(Archived(partition.first, partition.last, str(file or "")))
    return done


def _read_back(file: Path) -> None:
    """Nothing is dropped for a file that cannot be read."""
    try:
        for _ in checked(file):
            pass
    except HistoryFileError as error:
        raise UpkeepRefused(
            f"what was just written cannot be read: {error}",
            "look at the disk; nothing was archived",
        ) from error
