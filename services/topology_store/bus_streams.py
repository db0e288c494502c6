"""Create or update the bus' streams when a store starts, for as long as that takes.

If the bus is away, or three servers have no leader yet, the store does not end: it folds,
answers and keeps its leases, and exporters keep their newest report.
"""

from __future__ import annotations

from shared.bus.port import Bus, BusUnavailable
from shared.runtime.clock import Clock
from shared.telemetry import logs, names

PAUSE_S = 1.0


class BusStreams:
    """Creates the streams; `waits_for` is a readiness check."""

    def __init__(self, bus: Bus, clock: Clock) -> None:
        self._bus, self._clock = bus, clock
        self._missing = "not checked yet"
        self._out = logs.get("bus")

    def waits_for(self) -> str:
        """Return the problem of the streams, empty once they exist."""
        return self._missing

    async def make(self) -> None:
        """Return when the streams exist. Afterwards publishers and subscribers watch them."""
        while self._missing:
            try:
                await self._bus.ensure_streams()
            except BusUnavailable as error:
                self._missing = str(error)
                self._out.warning(names.BUS_TROUBLE, problem=self._missing)
                await self._clock.sleep(PAUSE_S)
            else:
                self._missing = ""
