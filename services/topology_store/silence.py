"""Watching for silence: a leased role of a store that hears the bus. Says which nodes fell silent,
and looks after locked ones.

Silence counts only up to the moment at which this process surely heard the bus itself: a bus that
is away is no evidence about nodes, and after it was away every node gets its time again. Must not
decide what silence means (`core.expire`).
"""

from __future__ import annotations

from services.topology_store import core
from services.topology_store.core import Accepted
from services.topology_store.handlers import Reports
from shared.bus.port import Bus
from shared.eventlog.errors import LogUnavailable
from shared.eventlog.port import Appended, EventLog, Fenced, Lease
from shared.events import streams
from shared.runtime.clock import Clock
from shared.runtime.health import Health
from shared.runtime.leadership import Leadership, LeaseLost
from shared.telemetry import logs, names
from shared.telemetry.instruments import set_gauge

ROLE = "silence"
TICK_S = 1.0
DEAF_AFTER_S = 5.0
"""Some echoes later: a bus that was not heard for longer was away."""
MAX_RED = 20
"""Locked nodes that are named in health one by one."""


class Silence:
    """`run` takes part in the role for ever; `hear` is every store's own account of what it hears."""

    def __init__(
        self,
        reports: Reports,
        log: EventLog,
        bus: Bus,
        report_max_age_s: float,
        clock: Clock,
        health: Health,
    ) -> None:
        self._reports = reports
        self._log = log
        self._bus = bus
        self._report_max_age_s = report_max_age_s
        self._clock = clock
        self._health = health
        self._until_s = clock.monotonic_s()
        self._red: set[str] = set()
        self._out = logs.get("silence")

    @property
    def deaf(self) -> bool:
        """Whether this process does not hear the bus."""
        return self._bus.since_echo_s() > DEAF_AFTER_S

    def waits_for(self) -> str:
        """For readiness."""
        return (
            "the bus: what is sent through its stream of reports does not come back"
            if self.deaf
            else ""
        )

    async def hear(self) -> None:
        """Keep account of what was heard, and of locked nodes, until cancelled."""
        while True:
            await self._clock.sleep(TICK_S)
            self.account()
            known = self._reports.known.values()
            set_gauge(
                names.NODES_KNOWN, sum(each.report is not None and not each.left for each in known)
            )
            await self._look_after_locked()

    async def run(self, leadership: Leadership) -> None:
        """Hold the role while the bus is heard; a store that is deaf leaves it to one that is not."""
        while True:
            while self.deaf:
                await self._clock.sleep(TICK_S)
            await leadership.run(self._watch)

    async def _watch(self, lease: Lease) -> None:
        while not self.deaf:
            await self.expire(lease)
            await self._clock.sleep(TICK_S)

    def account(self) -> None:
        """Move the moment up to which silence counts; after a time of deafness nobody was silent."""
        until_s = self._clock.monotonic_s() - self._bus.since_echo_s()
        if until_s <= self._until_s:
            return
        if until_s - self._until_s > DEAF_AFTER_S:
            self._reports.heard_s.update(
                {node: max(at, until_s) for node, at in self._reports.heard_s.items()}
            )
        self._until_s = until_s

    async def expire(self, lease: Lease) -> None:
        """Say which nodes have fallen silent."""
        self.account()
        found = []
        for node, known in self._reports.known.items():
            if known.report is None:
                continue
            silent_s = self._until_s - self._reports.heard_s.setdefault(node, self._until_s)
            decision = core.expire(node, known, silent_s, self._report_max_age_s)
            if isinstance(decision, Accepted):
                found.append((node, known, decision))
                self._out.warning(names.NODE_SILENT, node=node, silent_s=int(silent_s))
        commits = [self._reports.commit(node, decision, lease) for node, _, decision in found]
        outcomes = await self._reports.append(commits)
        for (node, known, decision), outcome in zip(found, outcomes, strict=True):
            if isinstance(outcome, Fenced):
                raise LeaseLost(f"{ROLE}: a newer epoch than {lease.epoch} leads")
            if isinstance(outcome, Appended):
                await self._reports.appended(node, known, decision, self._reports.now_ms())
            else:
                await self._reports.refold(node)
        set_gauge(names.NODES_SILENT, sum(known.silent for known in self._reports.known.values()))

    async def _look_after_locked(self) -> None:
        """Nodes of which nothing is believed: their streams may have moved (a release, another
        store), and health names them.
        """
        dark = {
            streams.report(name): name
            for name, known in self._reports.known.items()
            if known.expired or known.locked
        }
        try:
            versions = await self._log.versions(list(dark)) if dark else {}
            for stream, version in versions.items():
                known = self._reports.known.get(dark[stream])
                if known is None or version == known.version:
                    continue
                await self._reports.refold(dark[stream])
                if (now := self._reports.known.get(dark[stream])) is not None and now.released:
                    self._out.info(names.NODE_RELEASED, node=dark[stream])
        except LogUnavailable as error:
            self._out.warning(names.LOG_UNAVAILABLE, problem=str(error))
        locked = {
            name: known.locked
            for name, known in self._reports.known.items()
            if known.locked and not known.left
        }
        for name in self._red - locked.keys():
            self._health.recover(f"node {name}")
        self._red = set(sorted(locked)[:MAX_RED])
        for name in self._red:
            self._health.fail(f"node {name}", core.lockout(name, locked[name]))
        set_gauge(names.NODES_LOCKED_OUT, len(locked))
