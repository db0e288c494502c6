"""Follow the log: the ledger, the newest events in words, rates, and when each pod was created.
Reads only; must not know terminals.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

from services.replay import reading, words
from services.replay.explain import Story, explain
from services.replay.filters import FilterError, clock
from services.replay.names import Names
from services.replay.state_at import node_state
from services.top import model
from services.top.model import Newest, NodeRow, Picture, node_row
from services.top.rates import Rates
from shared.eventlog.port import EventLog
from shared.eventlog.skips import skips
from shared.events.catalog import Event
from shared.events.envelope import Envelope
from shared.events.quarantine import QuarantinedStreams
from shared.ledger.state import Ledger

NEWEST_SHOWN = 50
WAIT_S = 0.5
PAGE = 2000
ALL_EVENTS = "events"
# Counting over all pods may take one part in so many of the time.
COUNTING_SHARE = 10
COUNTED = {
    "PodReserved": "reserved",
    "PodBound": "bound",
    "PodRunning": "admitted",
    "PodEnded": "ended",
}


class Follower:
    """The state of the picture.

    `rejected` counts rejections by kubelets since the log began. `created_us` is when each live pod
    was observed first.
    """

    def __init__(self, log: EventLog) -> None:
        self.ledger = Ledger()
        self.head = 0
        self.newest: deque[Newest] = deque(maxlen=NEWEST_SHOWN)
        self.rejected = 0
        self.created_us: dict[str, int] = {}
        self._log = log
        self._names = Names(log)
        self._quarantined = QuarantinedStreams()
        self._rates = Rates()
        self._newest_us = 0
        self._folded_s = time.monotonic()
        self._rows: dict[str, NodeRow] = {}
        self._resource = ""
        self._totals = model.Totals([], [], [], {})
        self._count_again_s = 0.0

    @property
    def now_us(self) -> int:
        """The time of the newest event, and how long ago it was folded."""
        return self._newest_us + int((time.monotonic() - self._folded_s) * 1e6)

    async def follow(self) -> AsyncIterator[None]:
        """Fold for ever; yield after each page, so that other tasks can run."""
        self._quarantined.skipped = await skips(self._log)
        while True:
            self.head = await self._log.head()
            if self.ledger.position >= self.head:
                await self._log.wait(self.ledger.position, WAIT_S)
            last = min(self.head, self.ledger.position + PAGE)
            async for envelope in reading.envelopes(self._log, self.ledger.position, last):
                event, touched = reading.fold_one(self.ledger, envelope, self._quarantined)
                if event is None:
                    continue
                for name in touched:
                    self._rows.pop(name, None)
                self._names.learn(event)
                self._count(envelope, event)
                if self.head - envelope.position < NEWEST_SHOWN:
                    await self._names.find(words.mentioned(event))
                    text = words.sentence_of(event, self._names.known)
                    self.newest.append(
                        Newest(envelope.position, clock(envelope.time_us)[11:19], text)
                    )
            yield

    def _count(self, envelope: Envelope, event: Event) -> None:
        self._newest_us = max(self._newest_us, envelope.time_us)
        self._folded_s = time.monotonic()
        self._rates.add(ALL_EVENTS, envelope.time_us)
        if envelope.type in COUNTED:
            self._rates.add(COUNTED[envelope.type], envelope.time_us)
            self.rejected += getattr(event, "cause", "") == "rejected"
        if envelope.type == "PodObserved":
            self.created_us.setdefault(envelope.stream.removeprefix("pod/"), envelope.time_us)
        elif envelope.type == "PodEnded":
            self.created_us.pop(envelope.stream.removeprefix("pod/"), None)

    def rates(self) -> dict[str, float]:
        """Return events, and pods reserved, bound, admitted and ended, per second of the log."""
        return self._rates.per_second(self.now_us)

    def rows(self, resource: str) -> list[NodeRow]:
        """Return a row per node. Only changed nodes are computed again."""
        if resource != self._resource:
            self._rows, self._resource = {}, resource
        for name, node in self.ledger.nodes.items():
            if name not in self._rows:
                self._rows[name] = node_row(node, resource)
        if len(self._rows) > len(self.ledger.nodes):
            self._rows = {
                name: row for name, row in self._rows.items() if name in self.ledger.nodes
            }
        return list(self._rows.values())

    async def at_head(self) -> None:
        """Fold as far as the log has events now."""
        async for _ in self.follow():
            if self.ledger.position >= self.head:
                return

    def picture(self, number: int) -> Picture:
        """Return the values of this moment, with the rows of one resource, by its number."""
        totals = self.totals()
        return self.picture_of(totals, model.resource_at(totals.resources, number))

    def picture_of(self, totals: model.Totals, resource: str) -> Picture:
        """Return the values of this moment with these totals and the rows of this resource."""
        return Picture(
            self.ledger.position,
            self.head,
            len(self.ledger.nodes),
            resource,
            self.rows(resource),
            totals,
            self.rates(),
            self.rejected,
            list(self.newest),
        )

    def totals(self) -> model.Totals:
        """Return the totals. In a large cluster they may be a little old, because counting may
        take only a small part of the time.
        """
        began_s = time.monotonic()
        if began_s >= self._count_again_s:
            self._totals = model.totals_of(self.ledger, self.created_us, self.now_us)
            self._count_again_s = time.monotonic() + COUNTING_SHARE * (time.monotonic() - began_s)
        return self._totals

    async def node(self, name: str) -> dict[str, Any]:
        """Return one node as `topolog replay at` does. Raises FilterError."""
        if name not in self.ledger.nodes:
            raise FilterError(f"{name}: deleted", "")
        return node_state(self.ledger, self.ledger.nodes[name])

    async def story(self, uid: str) -> list[Story]:
        """Return the story of a pod. Raises FilterError."""
        return await explain(self._log, uid)
