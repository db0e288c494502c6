"""Work for one process at a time: hold the role's lease, renew it, and stop the work before another
process can hold it.

The lease avoids wasted work; the epoch in every append makes it safe.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable

from shared.cancellation import pass_on_cancellation
from shared.eventlog.errors import LogUnavailable
from shared.eventlog.port import EventLog, Lease
from shared.runtime.clock import SYSTEM_CLOCK, Clock
from shared.runtime.health import Health
from shared.telemetry import logs, names
from shared.telemetry.instruments import count, set_gauge

Work = Callable[[Lease], Awaitable[None]]
NO_LEADER = "no process is known to lead"
# How often a standby asks. The lease of a killed holder is free at once, so this is most of the
# duration of a failover.
STANDBY_S = 0.15


class LeaseLost(Exception):
    """Raised by work (for example on a `Fenced` outcome): another process leads now. The work is
    stopped, not failed.
    """


class Leadership:
    """One role. `lease` is the current lease, or None. `holder` must be unique (see `holder_name`).

    With `health`, the process is ready while it leads, or if the log has reported another leader
    within the last `ttl_s`."""

    def __init__(
        self,
        log: EventLog,
        role: str,
        holder: str,
        *,
        ttl_s: float = 10.0,
        clock: Clock = SYSTEM_CLOCK,
        health: Health | None = None,
    ) -> None:
        self.role = role
        self.lease: Lease | None = None
        self._label = role
        self._log = log
        self._holder = holder
        self._ttl_s = ttl_s
        self._clock = clock
        self._another_s = -math.inf
        self._trouble = ""
        self._out = logs.get(f"leadership {role}")
        if health is not None:
            health.check(f"role {role}", self._waiting_for)

    def _waiting_for(self) -> str:
        led = self.lease is not None or self._clock.monotonic_s() - self._another_s <= self._ttl_s
        return "" if led else NO_LEADER

    async def run(self, work: Work) -> None:
        """Wait for the lease, run `work(lease)` while it lasts, and begin again when it is lost.
        Returns when the work returns; raises what the work raises. Releases the lease when
        cancelled."""
        while True:
            pass_on_cancellation()
            lease, renewed_s = await self._gain()
            if await self._lead(work, lease, renewed_s):
                return

    async def _gain(self) -> tuple[Lease, float]:
        while True:
            asked_s = self._clock.monotonic_s()
            try:
                lease = await self._claim()
            except LogUnavailable as error:
                self._note_log(str(error))
            else:
                self._note_log("")
                if lease is not None:
                    return lease, asked_s
                self._another_s = self._clock.monotonic_s()
            await self._clock.sleep(min(STANDBY_S, self._ttl_s / 4))

    def _note_log(self, problem: str) -> None:
        """Log a problem of the log when it changes ("" if it answered): it is asked several times a
        second."""
        if problem and problem != self._trouble:
            self._out.warning(names.LOG_UNAVAILABLE, problem=problem)
        self._trouble = problem

    async def _claim(self) -> Lease | None:
        """Return the lease if it is free."""
        return await self._log.acquire(self.role, self._holder, self._ttl_s)

    async def _lead(self, work: Work, lease: Lease, renewed_s: float) -> bool:
        """Return True if the work is done, False if the lease was lost."""
        self._enter(lease)
        running = asyncio.ensure_future(work(lease))
        try:
            kept = await self._renew_while(running, lease, renewed_s)
            if kept:
                await running
            return kept
        except LeaseLost:
            return False
        finally:
            await stopped(running)
            await self._leave(lease)

    async def _renew_while(
        self, running: asyncio.Future[None], lease: Lease, renewed_s: float
    ) -> bool:
        """Renew every third of the ttl; return False if another process has the lease, or a renewal
        is overdue."""
        while True:
            done, _ = await asyncio.wait({running}, timeout=self._ttl_s / 3)
            if done:
                return True
            asked_s = self._clock.monotonic_s()
            try:
                rest_s = max(renewed_s + self._ttl_s * 0.8 - asked_s, 0.05)
                async with asyncio.timeout(rest_s):
                    again = await self._log.acquire(self.role, self._holder, self._ttl_s)
            except (LogUnavailable, TimeoutError):
                if self._clock.monotonic_s() - renewed_s > self._ttl_s * 0.7:
                    return False
                continue
            if again != lease:
                return False
            renewed_s = asked_s

    def _enter(self, lease: Lease) -> None:
        self.lease = lease
        set_gauge(names.LEADER, 1, role=self._label)
        self._out.info(names.LEASE_GAINED, role=self.role, epoch=lease.epoch, holder=self._holder)

    async def _leave(self, lease: Lease) -> None:
        self.lease = None
        set_gauge(names.LEADER, 0, role=self._label)
        count(names.LEASE_LOST, role=self._label)
        self._out.warning(names.LEASE_ENDED, role=self.role, epoch=lease.epoch, holder=self._holder)
        try:
            async with asyncio.timeout(1.0):
                await self._log.release(lease)
        except (LogUnavailable, TimeoutError):
            return


async def stopped(running: asyncio.Future[None]) -> None:
    """Cancel and wait; ignore errors, because the work is unwanted."""
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
