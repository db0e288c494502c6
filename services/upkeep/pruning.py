"""`topolog log prune`: what of the log is old goes to files only.

A partition's file is written, or verified if `topolog log archive --to` wrote it, before its blocks
leave the database. Commit ids and versions of ended streams go with them; what then refuses a late
commit is in ADR 50. After an interruption the same command continues.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import msgspec

from services.upkeep.archiving import DAY_US, read_back
from services.upkeep.errors import UpkeepRefused
from services.upkeep.exporting import export
from shared.eventlog.archive_folder import ArchiveFolder, file_name
from shared.eventlog.history_file import Block, Header, HistoryFileError, checked
from shared.eventlog.port import EventLog
from shared.eventlog.postgres_pruning import Prunable, Range
from shared.eventlog.redactions import redactions

# A commit id is remembered at least this long.
LEAST_DAYS = 7.0

# Prunes the blocks that begin at these positions, whose files are in the folder.
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
    log: EventLog, prunable: Prunable, ranges: Sequence[Range], folder: Path, drop: Drop
) -> list[Pruned]:
    """Prune these ranges one by one. Raises UpkeepRefused."""
    folder = folder.resolve()
    log_id = (await log.identity()).log_id
    if not ArchiveFolder(folder, log_id).covers(prunable.pruned_to):
        raise UpkeepRefused(
            f"{folder} lacks files of positions 1 to {prunable.pruned_to}, which are only there",
            f"--to {prunable.archive}; or copy its files to the new folder first",
        )
    done = []
    for part in ranges:
        file = folder / file_name(part.first, part.last)
        if not await _is_whole(log, file, part):
            await export(log, file, part.first, part.last)
            read_back(file)
        await drop(part.blocks, str(folder))
        done.append(Pruned(part.first, part.last, str(file)))
    if not done:
        await drop((), str(folder))
    return done


async def _is_whole(log: EventLog, file: Path, part: Range) -> bool:
    """Return whether the file holds these events as the log does, redacted events masked."""
    if not file.exists():
        return False
    masked = {
        position: digest
        for position, digest in (await redactions(log)).items()
        if part.first <= position <= part.last
    }
    (newest,) = await log.read(part.last - 1, 1)
    header, chain = None, b""
    try:
        for item in checked(file):
            if isinstance(item, Header):
                header = item
            elif isinstance(item, Block):
                chain = item.envelopes[-1].chain
    except HistoryFileError:
        return False
    return (
        header is not None
        and (header.first, header.redacted, chain) == (part.first, masked, newest.chain)
        and bool(chain)
    )
