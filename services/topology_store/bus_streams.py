"""The bus' streams, made or brought up to date when a store starts, for as long as that takes.

A bus that is away, or three servers that have yet to find a leader, are no reason to end: the store
folds, answers and keeps its leases meanwhile, and exporters keep their newest report. Must not know
what goes through the streams.
"""

from __future__ import annotations

from shared.bus.port import Bus, BusUnavailable
from shared.runtime.clock import Clock
from shared.telemetry import logs, names

PAUSE_S = 1.0


class BusStreams:
    """`waits_for` is for readiness."""

    def __init__(self, bus: Bus, clock: Clock) -> None:
        self._bus, self._clock = bus, clock
        self._missing = "they are looked for"
        self._out = logs.get("bus")

    def waits_for(self) -> str:
        """What the streams lack, empty once they are there."""
        return self._missing

    async def make(self) -> None:
        """Returns when they are there; from then on who publishes or subscribes looks after them."""
        while self._missing:
            try:
                await self._bus.ensure_streams()
            except BusUnavailable as error:
                self._missing = str(error)
                self._out.warning(names.BUS_TROUBLE, problem=self._missing)
                await self._clock.sleep(PAUSE_S)
            else:
                self._missing = ""
