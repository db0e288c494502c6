"""`topolog log prune`: what of the log is old goes to files only.

A partition's file is written, or verified if `topolog log archive --to` wrote it, before its blocks
leave the database. Commit ids and versions of ended streams go with them; what then refuses a late
commit is in ADR 50. After an interruption the same command continues.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import msgspec

from services.upkeep.archiving import DAY_US, require_readable, write
from services.upkeep.errors import UpkeepRefused
from shared.eventlog.archive_files import ArchiveFiles, file_name
from shared.eventlog.archive_place import Place
from shared.eventlog.history_file import Block, Header, HistoryFileError, checked
from shared.eventlog.port import EventLog
from shared.eventlog.postgres_pruning import Prunable, Range
from shared.eventlog.redactions import redactions

# A commit id is remembered at least this long.
LEAST_DAYS = 7.0

# Prunes the blocks that begin at these positions, whose files are in the place with this name.
Drop = Callable[[Sequence[int], str], Awaitable[None]]


class Pruned(msgspec.Struct, frozen=True):
    """One pruned range and its file."""

    first: int
    last: int
    file: str


async def due(
    log: EventLog, prunable: Prunable, older_than_days: float, now_us: int
) -> list[Range]:
    """Return the ranges to prune: those of the beginning of the log that are old enough and that
    everything has passed. Raises UpkeepRefused."""
    if older_than_days < LEAST_DAYS:
        raise UpkeepRefused(
            f"--older-than {older_than_days:g}d forgets commit ids that may still be sent again",
            f"give at least {LEAST_DAYS:g}d",
        )
    ranges = []
    for part in prunable.ranges:
        (newest,) = await log.read(part.last - 1, 1)
        if part.behind or now_us - newest.time_us < older_than_days * DAY_US:
            break
        ranges.append(part)
    return ranges


async def prune(
    log: EventLog, prunable: Prunable, ranges: Sequence[Range], place: Place, drop: Drop
) -> list[Pruned]:
    """Prune these ranges one by one. Raises UpkeepRefused."""
    log_id = (await log.identity()).log_id
    require_readable(place)
    if not ArchiveFiles(place, log_id).covers(prunable.pruned_to):
        raise UpkeepRefused(
            f"{place} lacks files of positions 1 to {prunable.pruned_to}, which are only there",
            f"--to {prunable.archive}; or copy its files to the new place first",
        )
    done = []
    for part in ranges:
        name = file_name(part.first, part.last)
        if not await _is_whole(log, place, name, part):
            await write(log, place, name, part.first, part.last)
        await drop(part.blocks, str(place))
        done.append(Pruned(part.first, part.last, f"{place}/{name}"))
    if not done:
        await drop((), str(place))
    return done


async def _is_whole(log: EventLog, place: Place, name: str, part: Range) -> bool:
    """Return whether the file holds these events as the log does, redacted events masked."""
    if name not in place.names():
        return False
    masked = {
        position: digest
        for position, digest in (await redactions(log)).items()
        if part.first <= position <= part.last
    }
    (newest,) = await log.read(part.last - 1, 1)
    header, chain = None, b""
    try:
        for item in checked(place.path(name)):
            if isinstance(item, Header):
                header = item
            elif isinstance(item, Block):
                chain = item.envelopes[-1].chain
    except (HistoryFileError, OSError):
        return False
    return (
        header is not None
        and (header.first, header.redacted, chain) == (part.first, masked, newest.chain)
        and bool(chain)
    )
