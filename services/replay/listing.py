"""`replay log`: facts in order of position, as rows with a sentence for people and everything uncut
for machines.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from services.replay import filters, reading, words
from services.replay.filters import Filter
from services.replay.names import Names, require_node, require_pod
from shared.eventlog.port import EventLog
from shared.events.codec import UndecodableEvent, decode
from shared.events.envelope import Envelope

FOLLOW_WAIT_S = 1.0


class Listing(msgspec.Struct, frozen=True):
    """What `replay log` was asked for: of positions `first` to `last` (None: the head); with
    `follow` of all from `first` on.
    """

    wanted: Filter
    first: int = 1
    last: int | None = None
    pod: str = ""
    limit: int = 1_000_000_000
    follow: bool = False


async def list_events(
    log: EventLog, listing: Listing, show: Callable[[dict[str, Any]], None]
) -> None:
    """Hand each accepted fact to `show`, oldest first; with `follow` go on for ever. Raises
    FilterError for a pod or node that the log does not know."""
    wanted = listing.wanted
    if listing.pod:
        wanted = msgspec.structs.replace(
            wanted, uids=frozenset(await require_pod(log, listing.pod))
        )
    if wanted.node:
        await require_node(log, wanted.node)
    names, left = Names(log), listing.limit
    position = listing.first - 1
    while left > 0:
        async for envelope in reading.envelopes(
            log, position, None if listing.follow else listing.last
        ):
            position = envelope.position
            if wanted.accepts(envelope):
                show(await row(envelope, names))
                left -= 1
                if left == 0:
                    return
        if not listing.follow:
            return
        await log.wait(position, FOLLOW_WAIT_S)


async def row(envelope: Envelope, names: Names) -> dict[str, Any]:
    """One fact as a flat value; an undecodable one says so instead of hiding."""
    try:
        decoded = decode(envelope)
        names.learn(decoded)
        await names.find(words.mentioned(decoded))
        told = words.told(decoded, names.known)
        event: Any = msgspec.to_builtins(decoded)
        event.pop("type", None)
    except UndecodableEvent as error:
        event, told = None, words.Told("", "", f"cannot be decoded: {error}")
    return {
        "position": envelope.position,
        "time": filters.clock(envelope.time_us),
        "pod": told.pod,
        "node": told.node,
        "text": told.text,
        "stream": envelope.stream,
        "version": envelope.version,
        "type": envelope.type,
        "role": envelope.role,
        "epoch": envelope.epoch,
        "commit_id": envelope.commit_id,
        "correlation": envelope.correlation,
        "causation": envelope.causation,
        "trace": envelope.trace,
        "fact": event,
    }
