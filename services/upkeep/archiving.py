"""`topolog log archive`: full partitions behind every consumer become files and compressed blocks,
without loss for any reader.

A partition is first written to a verified file, then its rows are replaced with blocks in the
database, in one transaction. Readers, including services that start cold, read on as before. After
an interruption the same command continues.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from services.upkeep.errors import UpkeepRefused
from services.upkeep.exporting import export
from shared.eventlog.archive_files import file_name
from shared.eventlog.archive_place import Place
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
    place: Place | None,
    drop: Callable[[Partition], Awaitable[None]],
) -> list[Archived]:
    """Archive these partitions one by one; `drop` turns rows into blocks. Raises UpkeepRefused."""
    done = []
    if place is not None:
        require_readable(place)
    for partition in partitions:
        file = ""
        if place is not None:
            name = file_name(partition.first, partition.last)
            await write(log, place, name, partition.first, partition.last)
            file = f"{place}/{name}"
        await drop(partition)
        done.append(Archived(partition.first, partition.last, file))
    return done


async def write(log: EventLog, place: Place, name: str, first: int, last: int) -> None:
    """Write a file of the archive, and read it back. Raises UpkeepRefused."""
    try:
        with place.writing(name) as file:
            await export(log, file, first, last)
        # Rows are only dropped for a file that can be read back.
        for _ in checked(place.path(name)):
            pass
    except HistoryFileError as error:
        raise UpkeepRefused(
            f"the file that was just written cannot be read: {error}",
            "check the disk; nothing was archived",
        ) from error
    except OSError as error:
        raise _unusable(place, error) from error


def require_readable(place: Place) -> None:
    """Raise UpkeepRefused if the place cannot be listed."""
    try:
        place.names(again=True)
    except OSError as error:
        raise _unusable(place, error) from error


def _unusable(place: Place, error: OSError) -> UpkeepRefused:
    return UpkeepRefused(
        f"the archive {place} cannot be used: {error.strerror}",
        "check TOPOLOG_ARCHIVE, and for a bucket AWS_ENDPOINT_URL, AWS_REGION and the credentials",
    )
