"""Follows the log: the ledger as it stands, the last facts in words, and rates. Reading only; must
not know terminals.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import AsyncIterator

import msgspec

from services.replay import reading, words
from services.replay.filters import clock
from services.replay.names import Names
from services.replay.words import Told
from services.top.model import NodeRow, node_row
from shared.eventlog.port import EventLog
from shared.eventlog.skips import skips
from shared.events.quarantine import QuarantinedStreams
from shared.ledger.state import Ledger

LAST_FACTS = 50
RATE_OVER_S = 10.0
WAIT_S = 0.5
PAGE = 2000
COUNTED = {
    "PodReserved": "reserved",
    "PodBound": "bound",
    "PodRunning": "admitted",
    "PodEnded": "ended",
}


class Heard(msgspec.Struct, frozen=True):
    """One of the last facts."""

    position: int
    time: str
    told: Told


class Follower:
    """The state of the picture. `rejected` counts refusals by kubelets since the log began."""

    def __init__(self, log: EventLog) -> None:
        self.ledger = Ledger()
        self.head = 0
        self.last: deque[Heard] = deque(maxlen=LAST_FACTS)
        self.rejected = 0
        self._log = log
        self._names = Names(log)
        self._quarantined = QuarantinedStreams()
        self._counts: dict[str, int] = {}
        self._marks: deque[tuple[float, int, dict[str, int]]] = deque()
        self._rows: dict[str, NodeRow] = {}
        self._resource = ""

    @property
    def log(self) -> EventLog:
        """The log that is followed."""
        return self._log

    async def follow(self) -> AsyncIterator[None]:
        """Fold for ever; yields after each page, so that others get their turn."""
        self._quarantined.skipped = await skips(self._log)
        while True:
            self.head = await self._log.head()
            if self.ledger.position >= self.head:
                await self._log.wait(self.ledger.position, WAIT_S)
            async for envelope in reading.envelopes(
                self._log, self.ledger.position, min(self.head, self.ledger.position + PAGE)
            ):
                event, touched = reading.fold_one(self.ledger, envelope, self._quarantined)
                if event is None:
                    continue
                for name in touched:
                    self._rows.pop(name, None)
                self._names.learn(event)
                if envelope.type in COUNTED:
                    self._counts[COUNTED[envelope.type]] = (
                        self._counts.get(COUNTED[envelope.type], 0) + 1
                    )
                    self.rejected += getattr(event, "cause", "") == "rejected"
                if self.head - envelope.position < LAST_FACTS:
                    await self._names.find(words.mentioned(event))
                    told = words.told(event, self._names.known)
                    self.last.append(Heard(envelope.position, clock(envelope.time_us)[11:19], told))
            self._mark()
            yield

    def rates(self) -> dict[str, float]:
        """Per second over the last ten: facts, and pods reserved, bound, admitted, ended."""
        if len(self._marks) < 2:
            return {}
        (then_s, position, counts), now_s = self._marks[0], self._marks[-1][0]
        passed_s = max(now_s - then_s, 0.1)
        grown = {name: self._counts.get(name, 0) - counts.get(name, 0) for name in COUNTED.values()}
        return {"facts": (self.ledger.position - position) / passed_s} | {
            name: n / passed_s for name, n in grown.items()
        }

    def rows(self, resource: str) -> list[NodeRow]:
        """A row a node; only what changed is made anew."""
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

    def _mark(self) -> None:
        now_s = time.monotonic()
        self._marks.append((now_s, self.ledger.position, dict(self._counts)))
        while len(self._marks) > 2 and now_s - self._marks[0][0] > RATE_OVER_S:
            self._marks.popleft()
