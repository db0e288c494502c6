"""The events about one node, in order, read through the index of streams: those of the node's own
streams, and of the pods that are on it, come to it, or are meant to.

1. A pod or hold is followed from the event that puts it on the node. That is a charge or claim on
   the node's stream, or an event that the log lists by node (`EventLog.pods_on`). Pods that were
   there before are in the nearest state.
2. The node's events are taken in parts that end with a commit. A commit lies together in the log,
   so everything that a part's pods did up to its end can be given with it, by position.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from heapq import heappop, heappush

from services.replay import reading
from services.replay.nearest import nearest_state
from shared.eventlog.port import EventLog, PodNames
from shared.eventlog.skips import skips
from shared.eventlog.whole_stream import envelopes_of, in_order
from shared.events import streams
from shared.events.about import About
from shared.events.codec import UndecodableEvent, decode
from shared.events.envelope import Envelope
from shared.events.quarantine import QuarantinedStreams

# Events of the node that are read before those of its pods. Most questions want few events.
PART = 50


async def envelopes_of_node(
    log: EventLog, node: str, listed: PodNames, after: int, until: int
) -> AsyncIterator[Envelope]:
    """Yield the events of these positions that may be about the node. `listed` is the answer of
    `pods_on`, which lists all pods from `after` on.
    """
    state = await nearest_state(log, after, QuarantinedStreams(await skips(log)))
    begin, ledger_node = state.ledger.position, state.ledger.nodes.get(node)
    uids = {
        uid for uid, entry in state.ledger.pods.items() if node in (entry.node, entry.nominated)
    }
    if ledger_node is not None:
        uids |= ledger_node.charges.keys()
    if node in state.holds.by_node:
        uids.add(state.holds.by_node[node].uid)
    # Between that state and the first listed position pods came to the node, too.
    async for envelope in reading.envelopes(log, begin, max(begin, listed.unlisted)):
        about = _about(envelope)
        uids |= {about.pod} if about.node == node else set()
    pods = _Pods(log, after)
    for uid in sorted(uids):
        await pods.follow(uid)
    node_streams = [
        envelopes_of(log, stream, await log.version_at(stream, begin) if begin else 0)
        for stream in streams.of_node(node)
    ]
    # The window may end inside a commit, before the event that puts a pod on the node.
    last_commit = (await log.read(until - 1, 1))[0].commit_id
    part, newest, show = dict[int, Envelope](), "", reading.SHOW_PROGRESS.get()
    async for envelope in in_order([*node_streams, _at(log, listed.positions, begin)]):
        if envelope.position > until and envelope.commit_id != last_commit:
            break
        if len(part) >= PART and envelope.commit_id != newest:
            async for event in _complete(pods, part, reached := max(part)):
                yield event
            part = {}
            show(after, reached, until)
        newest = envelope.commit_id
        await pods.follow(_about(envelope).pod)
        if after < envelope.position <= until:
            part[envelope.position] = envelope
    async for event in _complete(pods, part, until):
        yield event


async def _complete(pods: _Pods, part: dict[int, Envelope], end: int) -> AsyncIterator[Envelope]:
    """Yield a part with the events of pods up to its end."""
    async for envelope in pods.until(end):
        part[envelope.position] = envelope
    for position in sorted(part):
        yield part[position]


async def _at(log: EventLog, positions: list[int], after: int) -> AsyncIterator[Envelope]:
    for position in positions:
        if position > after:
            for envelope in await log.read(position - 1, 1):
                yield envelope


def _about(envelope: Envelope) -> About:
    try:
        return decode(envelope).about
    except UndecodableEvent:
        return About()


class _Pods:
    """The streams of the followed pods, each with its next event after position `after`."""

    def __init__(self, log: EventLog, after: int) -> None:
        self._log, self._after = log, after
        self._followed = set[str]()
        self._waiting: list[tuple[int, Envelope, AsyncIterator[Envelope]]] = []

    async def follow(self, uid: str) -> None:
        """Read the streams of a pod, unless they are read."""
        if not uid or uid in self._followed:
            return
        self._followed.add(uid)
        for stream in (streams.pod(uid), streams.hold(uid)):
            events = envelopes_of(self._log, stream)
            async for envelope in events:
                if envelope.position > self._after:
                    heappush(self._waiting, (envelope.position, envelope, events))
                    break

    async def until(self, end: int) -> AsyncIterator[Envelope]:
        """Yield the next events up to a position."""
        while self._waiting and self._waiting[0][0] <= end:
            _, envelope, events = heappop(self._waiting)
            yield envelope
            following = await anext(events, None)
            if following is not None:
                heappush(self._waiting, (following.position, following, events))
