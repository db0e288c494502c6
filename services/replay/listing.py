"""`replay log`: events in order of position, as rows with a sentence for people and all fields for
machines.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec

from services.replay import filters, reading, words
from services.replay.filters import Filter
from services.replay.names import Names, require_node, require_pod
from services.replay.of_node import envelopes_of_node
from shared.eventlog.port import EventLog, PodNames
from shared.eventlog.whole_stream import envelopes_of, in_order
from shared.events import streams
from shared.events.codec import UndecodableEvent, decode
from shared.events.envelope import Envelope

FOLLOW_WAIT_S = 1.0
# Events that are read sooner than the streams of a node and its pods are looked up.
SHORT = 5_000


class Listing(msgspec.Struct, frozen=True):
    """The request of `replay log`: positions `first` to `last` (None: the head). With `follow`,
    everything from `first` on.
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
    """Pass each accepted event to `show`, oldest first. With `follow` it goes on until interrupted.

    Raises FilterError for a pod or node that the log does not have.
    """
    wanted = listing.wanted
    if listing.pod:
        wanted = msgspec.structs.replace(
            wanted, uids=frozenset(await require_pod(log, listing.pod))
        )
    if wanted.node:
        await require_node(log, wanted.node)
    names, remaining = Names(log), listing.limit
    position = listing.first - 1
    while remaining > 0:
        head = await log.head()
        until = head if listing.follow or listing.last is None else min(listing.last, head)
        async for envelope in _between(log, wanted, position, until):
            if wanted.accepts(envelope):
                show(await row(envelope, names))
                remaining -= 1
                if remaining == 0:
                    return
        position = until
        if not listing.follow:
            return
        await log.wait(position, FOLLOW_WAIT_S)


async def _between(
    log: EventLog, wanted: Filter, after: int, until: int
) -> AsyncIterator[Envelope]:
    """Yield the events of these positions in order. If the filter names streams or a node, only
    their events are read, because the index by stream makes that cheap in a long log.
    """
    names = wanted.streams()
    if names is None:
        is_short = not wanted.node or until - after <= SHORT
        listed = PodNames([], until) if is_short else await log.pods_on(wanted.node)
        whole = min(until, listed.unlisted)
        async for envelope in reading.envelopes(log, after, whole):
            yield envelope
        if (begin := max(after, whole)) < until:
            async for envelope in envelopes_of_node(log, wanted.node, listed, begin, until):
                yield envelope
        return
    read = [
        envelopes_of(log, stream, await log.version_at(stream, after) if after else 0)
        for stream in names
    ]
    async for envelope in in_order(read):
        if envelope.position > until:
            return
        yield envelope


async def row(envelope: Envelope, names: Names) -> dict[str, Any]:
    """Return one event as a flat value. An event that cannot be decoded has a row that says so."""
    try:
        decoded = decode(envelope)
        names.learn(decoded)
        await names.find(words.mentioned(decoded))
        sentence = words.sentence_of(decoded, names.known)
        event: Any = msgspec.to_builtins(decoded)
        event.pop("type", None)
        subject = decoded.about.pod or streams.subject(envelope.stream)
    except UndecodableEvent as error:
        event, sentence = None, words.Sentence("", "", f"cannot be decoded: {error}")
        subject = streams.subject(envelope.stream)
    return {
        "position": envelope.position,
        "time": filters.clock(envelope.time_us),
        "pod": sentence.pod,
        "node": sentence.node,
        "text": sentence.text,
        "stream": envelope.stream,
        "version": envelope.version,
        "type": envelope.type,
        "role": envelope.role,
        "epoch": envelope.epoch,
        "commit_id": envelope.commit_id,
        "correlation": envelope.correlation or subject,
        "causation": envelope.causation,
        "trace": envelope.trace,
        "fact": event,
    }
