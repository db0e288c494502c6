"""`topolog log export`: a range of the log as one verified file, complete or not written at all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from services.upkeep.errors import UpkeepRefused
from services.upkeep.out_file import replacing
from shared.eventlog.history_file import Header, Writer
from shared.eventlog.port import EventLog
from shared.eventlog.redactions import redactions

PAGE = 10_000
# Consumers with a checkpoint in the log; all others fold.
CONSUMERS = ("relay",)


class Exported(msgspec.Struct, frozen=True):
    file: str
    first: int
    last: int
    bytes: int
    sha256: str


async def export(
    log: EventLog,
    out: Path,
    first: int,
    last: int,
    progress: Callable[[int], None] = lambda _: None,
) -> Exported:
    """Write positions `first`..`last`. An interruption leaves `out` unchanged; a kill also leaves
    `out`.partial. Raises UpkeepRefused."""
    if not 1 <= first <= last:
        raise UpkeepRefused(f"there are no events from {first} to {last}", "topolog log status")
    with replacing(out) as file:
        header = await _header(log, first, last)
        writer, position = Writer(file, header), first - 1
        while position < last:
            page = await log.read(position, min(PAGE, last - position))
            if not page or page[0].position != position + 1:
                raise UpkeepRefused(
                    f"position {position + 1} cannot be read", "topolog replay verify"
                )
            writer.add(page)
            position = page[-1].position
            progress(position)
        if await _redacted(log, first, last) != header.redacted:
            raise UpkeepRefused("events were redacted during the export", "run the command again")
        digest = writer.end()
    return Exported(str(out), first, last, out.stat().st_size, digest)


async def _header(log: EventLog, first: int, last: int) -> Header:
    identity = await log.identity()
    previous = await log.read(first - 2, 1) if first > 1 else []
    checkpoints = {name: min(await log.load_checkpoint(name), last) for name in CONSUMERS}
    return Header(
        log_id=identity.log_id,
        timeline=identity.timeline,
        first=first,
        last=last,
        before=previous[0].chain.hex() if previous else "",
        redacted=await _redacted(log, first, last),
        checkpoints={name: position for name, position in checkpoints.items() if position},
    )


async def _redacted(log: EventLog, first: int, last: int) -> dict[int, str]:
    """Return the redactions in the range, even if the event that records them is outside."""
    return {
        position: digest
        for position, digest in (await redactions(log)).items()
        if first <= position <= last
    }
