"""Keys (`namespace/name`) of pods by uid, read from the log at their first use and cached within a
bound.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from services.replay import reading
from services.replay.filters import FilterError, UnknownPod
from services.replay.suggestions import did_you_mean
from shared.eventlog.port import EventLog
from shared.events import streams
from shared.events.catalog import Event
from shared.events.cluster_events import PodObserved
from shared.events.codec import UndecodableEvent, decode

KEPT = 50_000


class Names:
    """Keys by uid. `known` is the cache."""

    def __init__(self, log: EventLog) -> None:
        self.known: dict[str, str] = {}
        self._log = log

    def learn(self, event: Event) -> None:
        """Add a pod. If there are very many, the oldest are dropped and looked up again."""
        if isinstance(event, PodObserved):
            self.known[event.pod.uid] = event.pod.key
            if len(self.known) > KEPT:
                del self.known[next(iter(self.known))]

    async def find(self, uids: Iterable[str]) -> None:
        """Look up the uids that are not cached. A pod's stream begins with the event that the pod
        was observed.
        """
        for uid in uids:
            if not uid or uid in self.known:
                continue
            for envelope in await self._log.read_stream(streams.pod(uid), 0, 3):
                if envelope.type == PodObserved.__name__:
                    with contextlib.suppress(UndecodableEvent):
                        self.learn(decode(envelope))
            self.known.setdefault(uid, uid)


async def uids_of(log: EventLog, pod: str) -> list[str]:
    """Return the uids of the pods called `pod` (a uid, a name, or namespace/name), in order of
    appearance.
    """
    return (await pods_called(log, pod))[0]


async def pods_called(log: EventLog, pod: str) -> tuple[list[str], set[str]]:
    """Return the same, and the keys of all pods of the log, for near matches."""
    uids: dict[str, None] = {}
    keys: set[str] = set()
    async for envelope in reading.envelopes(log):
        if envelope.type != PodObserved.__name__:
            continue
        try:
            event = decode(envelope)
        except UndecodableEvent:
            continue
        if isinstance(event, PodObserved):
            keys.add(event.pod.key)
            if pod in (event.pod.uid, event.pod.name, event.pod.key):
                uids[event.pod.uid] = None
    return list(uids), keys


async def require_pod(log: EventLog, pod: str) -> list[str]:
    """Return the uids of the pods with this name. Raises UnknownPod with near matches if there is
    none.
    """
    uids, keys = await pods_called(log, pod)
    if not uids:
        raise UnknownPod(
            f"no pod {pod!r} in the log{did_you_mean(pod, keys)}",
            "topolog replay log --type PodObserved",
        )
    return uids


async def require_node(log: EventLog, node: str) -> None:
    """Raise FilterError with near matches if the log does not know the node."""
    if (await log.versions([streams.node(node)]))[streams.node(node)] or (
        await log.versions([streams.report(node)])
    )[streams.report(node)]:
        return
    node_names = {
        envelope.stream.partition("/")[2]
        async for envelope in reading.envelopes(log)
        if envelope.type in ("NodeObserved", "NodeReported")
    }
    raise FilterError(
        f"no node {node!r} in the log{did_you_mean(node, node_names)}",
        "topolog replay log --type NodeObserved",
    )
