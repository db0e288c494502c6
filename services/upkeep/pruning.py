"""`topolog log prune`: what of the log is old goes to files only.

A partition's file is written, or verified if `topolog log archive --to` wrote it, before its blocks
leave the database. Commit ids and versions of ended streams go with them; what then refuses a late
commit is in ADR 50. After an interruption the same command continues.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import msgspec

from services.scheduler.state.state import FORM, PROJECTION
from services.upkeep.archiving import DAY_US, require_readable, write
from services.upkeep.errors import UpkeepRefused
from services.upkeep.out_file import replacing
from shared.eventlog.archive_files import ArchiveFiles, file_name, state_name
from shared.eventlog.archive_place import Place
from shared.eventlog.checkpoints import key_of
from shared.eventlog.history_file import Block, Header, HistoryFileError, checked
from shared.eventlog.port import EventLog
from shared.eventlog.postgres_pruning import Prunable, Range
from shared.eventlog.redactions import redactions

# A commit id is remembered at least this long.
LEAST_DAYS = 7.0
# Least positions between two checkpoints in the archive.
STATES_EVERY = 100_000

# Prunes the blocks that begin at these positions; their files are in the place with this name.
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
        await _keep_states(log, place, part)
        await drop(part.blocks, str(place))
        done.append(Pruned(part.first, part.last, f"{place}/{name}"))
    if not done:
        await drop((), str(place))
    return done


async def _keep_states(log: EventLog, place: Place, part: Range) -> None:
    """Write checkpoints of these positions, from which questions about them begin."""
    projection, form = key_of(PROJECTION, FORM.version)
    until = part.last
    while until >= part.first:
        kept = await log.load_snapshot(projection, form, until)
        if kept is None or kept[0].position < part.first:
            return
        made_at, state = kept
        name = state_name(projection, form, made_at.position)
        with place.writing(name) as file, replacing(file) as out:
            out.write(made_at.chain + state)
        until = made_at.position - STATES_EVERY


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
