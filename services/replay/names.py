"""Names of pods and nodes: keys (`namespace/name`) by uid, read at their first use and cached, uids
by name, and near matches of a name that the log does not have.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Collection, Iterable, Iterator

from services.replay import reading
from services.replay.filters import FilterError, UnknownPod
from services.replay.suggestions import did_you_mean
from shared.domain.pod import Pod
from shared.eventlog.port import EventLog, PodNames
from shared.eventlog.whole_stream import envelopes_of
from shared.events import streams
from shared.events.catalog import Event
from shared.events.cluster_events import PodObserved
from shared.events.codec import UndecodableEvent, decode
from shared.events.envelope import Envelope
from shared.events.scheduling_events import BookingMade

KEPT = 50_000
_NAMING = PodObserved.__name__, BookingMade.__name__

# Near matches of a name come from so many events before the head: to read more takes seconds.
SUGGESTED_FROM = 20_000


class Names:
    """Keys by uid. `known` is the cache."""

    def __init__(self, log: EventLog) -> None:
        self.known: dict[str, str] = {}
        self._log = log

    def learn(self, event: Event) -> None:
        """Add a pod. If there are very many, the oldest are dropped and looked up again."""
        if isinstance(event, PodObserved | BookingMade):
            self.known[event.pod.uid] = event.pod.key
            if len(self.known) > KEPT:
                del self.known[next(iter(self.known))]

    async def find(self, uids: Iterable[str]) -> None:
        """Look up the uids that are not cached. A pod's stream begins with the event that the pod
        was observed, or that the booking was made.
        """
        for uid in uids:
            if not uid or uid in self.known:
                continue
            async for envelope in envelopes_of(self._log, streams.pod(uid), 0, 3):
                if envelope.type in _NAMING:
                    with contextlib.suppress(UndecodableEvent):
                        self.learn(decode(envelope))
            self.known.setdefault(uid, uid)


async def uids_of(log: EventLog, pod: str) -> list[str]:
    """Return the uids of the pods called `pod` (a uid, a name, or namespace/name), in order of
    appearance.
    """
    if (await log.versions([streams.pod(pod)]))[streams.pod(pod)]:
        return [pod]
    uids: dict[str, None] = {}
    async for observed in _observed(log, await log.pods_named(pod.rpartition("/")[2])):
        if pod in (observed.name, observed.key):
            uids[observed.uid] = None
    return list(uids)


async def _observed(log: EventLog, listed: PodNames) -> AsyncIterator[Pod]:
    """Yield the pods that were observed at the listed positions or before the list began."""
    if listed.unlisted:
        async for envelope in reading.envelopes(log, 0, listed.unlisted):
            if envelope.type == PodObserved.__name__:
                for pod in _pods_in([envelope]):
                    yield pod
    for position in listed.positions:
        for pod in _pods_in(await log.read(position - 1, 1)):
            yield pod


def _pods_in(envelopes: Iterable[Envelope]) -> Iterator[Pod]:
    for envelope in envelopes:
        with contextlib.suppress(UndecodableEvent):
            event = decode(envelope)
            if isinstance(event, PodObserved):
                yield event.pod


async def require_pod(log: EventLog, pod: str) -> list[str]:
    """Return the uids of the pods with this name. Raises UnknownPod, with near matches of the pods
    that were observed lately, if there is none.
    """
    uids = await uids_of(log, pod)
    if not uids:
        lately = [envelope async for envelope in _lately(log, ("PodObserved",))]
        keys = {observed.key for observed in _pods_in(lately)}
        raise UnknownPod(
            f"no pod {pod!r} in the log{did_you_mean(pod, keys)}",
            "topolog replay log --type PodObserved",
        )
    return uids


async def require_node(log: EventLog, node: str) -> None:
    """Raise FilterError, with near matches of the nodes that were observed lately, if the log does
    not know the node.
    """
    names = [streams.node(node), streams.report(node)]
    if any((await log.versions(names)).values()):
        return
    node_names = {
        envelope.stream.partition("/")[2]
        async for envelope in _lately(log, ("NodeObserved", "NodeReported", "NodeReportChanged"))
    }
    raise FilterError(
        f"no node {node!r} in the log{did_you_mean(node, node_names)}",
        "topolog replay log --type NodeObserved",
    )


async def _lately(log: EventLog, types: Collection[str]) -> AsyncIterator[Envelope]:
    head = await log.head()
    first = max(await log.begins() - 1, head - SUGGESTED_FROM)
    async for envelope in reading.envelopes(log, first, head):
        if envelope.type in types:
            yield envelope
