"""`replay log`: facts in order of position, as rows with a sentence for people and everything uncut for machines."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import msgspec

from services.replay import filters, moments, reading, words
from services.replay.filters import Filter, FilterError
from services.replay.names import Names, require_node, require_pod
from shared.eventlog.port import EventLog
from shared.events.codec import UndecodableFact, decode
from shared.events.envelope import Envelope

FOLLOW_WAIT_S = 1.0
REMEDY = "topolog replay at head, or at 1"


class Listing(msgspec.Struct, frozen=True):
    """What `replay log` was asked for. `start` is a moment, "" for the beginning (with `follow`: the end)."""

    wanted: Filter
    pod: str = ""
    start: str = ""
    limit: int = 1_000_000_000
    follow: bool = False


async def list_facts(log: EventLog, listing: Listing, show: Callable[[dict[str, Any]], None]) -> None:
    """Hand each accepted fact to `show`, oldest first; with `follow` go on for ever. Raises FilterError for a pod, node or
    position that the log does not know."""
    wanted = listing.wanted
    if listing.pod:
        wanted = msgspec.structs.replace(wanted, uids=frozenset(await require_pod(log, listing.pod)))
    if wanted.node:
        await require_node(log, wanted.node)
    names, left = Names(log), listing.limit
    position = await _start(log, listing)
    while left > 0:
        async for envelope in reading.envelopes(log, position):
            position = envelope.position
            if wanted.accepts(envelope):
                show(await row(envelope, names))
                left -= 1
                if left == 0:
                    return
        if not listing.follow:
            return
        await log.wait(position, FOLLOW_WAIT_S)


async def _start(log: EventLog, listing: Listing) -> int:
    """After which position to begin."""
    if listing.start:
        return await position_of(log, listing.start, "--from") - 1
    return await log.head() if listing.follow else 0


async def row(envelope: Envelope, names: Names) -> dict[str, Any]:
    """One fact as a flat value; an undecodable one says so instead of hiding."""
    try:
        decoded = decode(envelope)
        names.learn(decoded)
        await names.find(words.mentioned(decoded))
        told = words.told(decoded, names.known)
        fact: Any = msgspec.to_builtins(decoded)
        fact.pop("type", None)
    except UndecodableFact as error:
        fact, told = None, words.Told("", "", f"cannot be decoded: {error}")
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
        "fact": fact,
    }


async def position_of(log: EventLog, text: str, what: str = "") -> int:
    """The position that a moment means, from 1 to the head. Raises FilterError for one outside the log."""
    head = await log.head()
    moment = moments.parse(text, int(time.time() * 1_000_000), what)
    if head == 0:
        raise FilterError("the log is empty", "topolog up")
    if isinstance(moment, moments.Back):
        return max(1, head - moment.facts)
    if isinstance(moment, moments.At):
        if not 1 <= moment.position <= head:
            raise FilterError(
                f"position {moment.position} is outside the log, which goes from 1 to {head}", "topolog replay at head"
            )
        return moment.position
    position = await reading.position_at(log, moment.time_us)
    if position == 0:
        first = (await log.read(0, 1))[0].time_us
        raise FilterError(f"{text!r} lies before the log begins, at {filters.clock(first)}", REMEDY)
    return position
