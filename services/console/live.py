"""The state at the head of the log, what changed when, and samples for the live plots.

Starts at the nearest snapshot of the scheduler. Counts of a sample begin with the console.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

import msgspec

from services.console.views import Counts, counts_of
from services.replay import reading
from services.replay.confirmations import actual_zones
from services.replay.deciding_state import follow
from services.replay.nearest import nearest_state
from services.scheduler.state.state import SchedulerState
from services.top.follow import ALL_EVENTS, COUNTED
from services.top.rates import Rates
from shared.eventlog.port import EventLog
from shared.eventlog.skips import skips
from shared.events.catalog import Event
from shared.events.cluster_events import PodEnded, PodObserved
from shared.events.envelope import Envelope
from shared.events.quarantine import QuarantinedStreams
from shared.events.scheduling_events import PodReserved, ReservationWithdrawn
from shared.ledger.fold import Touched
from shared.runtime.clock import Clock

WAIT_S = 0.5
PAGE = 2000
SAMPLES = 600


class Sample(msgspec.Struct, frozen=True):
    """One moment. `lag` is how many events the console is behind. `rejected`, `predicted` and `hit`
    count since the console began."""

    time_us: int
    lag: int
    counts: Counts
    rates_per_s: dict[str, float]
    rejected: int
    predicted: int
    hit: int


class Live:
    """The state at the head of the log. `changed` has the position of the last change of each node
    that changed since the console began, at position `begin`. `created_us` has the time at which
    each live pod was observed first, as far as it is known.
    """

    def __init__(self, log: EventLog, clock: Clock, sample_every_s: float) -> None:
        self.log = log
        self.state = SchedulerState()
        self.head = self.begin = 0
        self.changed: dict[str, int] = {}
        self.created_us: dict[str, int] = {}
        self.samples: deque[Sample] = deque(maxlen=SAMPLES)
        self.quarantined = QuarantinedStreams()
        self._clock, self._sample_every_s = clock, sample_every_s
        self._rates = Rates()
        self._unproven: dict[str, PodReserved] = {}
        self._rejected = self._predicted = self._hit = 0
        self._time_us = 0
        self._begun = asyncio.Event()

    @property
    def time_us(self) -> int:
        """The time of the newest folded event."""
        return self._time_us

    def waits_for(self) -> str:
        """Return what the first answer waits for, "" for nothing."""
        behind = self.head - self.state.ledger.position
        return "" if self._begun.is_set() and behind < PAGE else f"the fold, {behind} events behind"

    async def run(self) -> None:
        """Fold the log until cancelled."""
        self.quarantined.skipped = await skips(self.log)
        self.head = await self.log.head()
        self.state = await nearest_state(self.log, self.head, self.quarantined)
        self.begin = self.state.ledger.position
        self._begun.set()
        while True:
            position = self.state.ledger.position
            self.head = await self.log.head()
            if position >= self.head:
                await self.log.wait(position, WAIT_S)
                self.head = await self.log.head()
            last = min(self.head, position + PAGE)
            async for envelope in reading.envelopes(self.log, position, last):
                event, touched = follow(self.state, envelope, self.quarantined)
                self._note(envelope, event, touched)

    async def find_ages(self) -> None:
        """Find the times of pods that are older than the console. A pruned event is unknown."""
        await self._begun.wait()
        for uid in list(self.state.ledger.pods):
            for first in await self.log.read_stream(f"pod/{uid}", 0, 1):
                if first.version == 1 and uid in self.state.ledger.pods:
                    self.created_us.setdefault(uid, first.time_us)

    async def sample(self) -> None:
        """Take a sample at each interval, until cancelled."""
        while True:
            await self._clock.sleep(self._sample_every_s)
            self.samples.append(self.newest())

    def newest(self) -> Sample:
        """Return a sample of this moment."""
        now_us = self._clock.now_us()
        return Sample(
            now_us,
            self.head - self.state.ledger.position,
            counts_of(self.state),
            {name: round(rate, 2) for name, rate in self._rates.per_second(now_us).items()},
            self._rejected,
            self._predicted,
            self._hit,
        )

    def _note(self, envelope: Envelope, event: Event | None, touched: Touched) -> None:
        self._time_us = max(self._time_us, envelope.time_us)
        for name in touched:
            if name in self.state.ledger.nodes:
                self.changed[name] = envelope.position
            else:
                self.changed.pop(name, None)
        if event is None:
            return
        if isinstance(event, PodObserved):
            self.created_us.setdefault(event.pod.uid, envelope.time_us)
        elif isinstance(event, PodEnded):
            self.created_us.pop(event.uid, None)
        self._rates.add(ALL_EVENTS, envelope.time_us)
        if envelope.type in COUNTED:
            self._rates.add(COUNTED[envelope.type], envelope.time_us)
        self._rejected += getattr(event, "cause", "") == "rejected"
        if isinstance(event, PodReserved) and event.predicted:
            self._unproven[event.uid] = event
        elif isinstance(event, PodEnded | ReservationWithdrawn):
            self._unproven.pop(event.uid, None)
        for name in touched if self._unproven else ():
            self._compare(name)

    def _compare(self, name: str) -> None:
        """Count the predictions that a report of the node has just confirmed or refuted."""
        node = self.state.ledger.nodes.get(name)
        for uid, charge in (node.charges if node is not None else {}).items():
            if node is None or not charge.confirmed or uid not in self._unproven:
                continue
            predicted: dict[str, Any] = self._unproven.pop(uid).predicted
            actual = actual_zones(node, charge.key)
            self._predicted += 1
            self._hit += all(
                actual.get(container, tuple(zones)) == tuple(zones)
                for container, zones in predicted.items()
            )
