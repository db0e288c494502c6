"""Find silent nodes: a leased role of a store that receives from the bus. Also follows locked
nodes.

Silence counts only up to the last moment at which this process received from the bus. A missing bus
is no evidence about nodes, so afterwards every node gets its full time again. Must not decide what
silence means (`core.expire`).
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
# The bus counts as away if no echo came for this long.
AWAY_AFTER_S = 5.0
# Health names at most this many locked nodes.
MAX_NAMED = 20


class Silence:
    """`run` takes part in the role for ever. `watch_bus` runs in every store."""

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
        self._named: set[str] = set()
        self._out = logs.get("silence")

    @property
    def is_bus_away(self) -> bool:
        """Whether this process receives nothing from the bus."""
        return self._bus.since_echo_s() > AWAY_AFTER_S

    def waits_for(self) -> str:
        """Return the problem with the bus, for readiness."""
        return (
            "the bus: an echo through its stream of reports does not come back"
            if self.is_bus_away
            else ""
        )

    async def watch_bus(self) -> None:
        """Note the last echo, and follow locked nodes, until cancelled."""
        while True:
            await self._clock.sleep(TICK_S)
            self.account()
            reporting = sum(
                state.report is not None and not state.has_left
                for state in self._reports.nodes.values()
            )
            set_gauge(names.NODES_KNOWN, reporting)
            await self._look_after_locked()

    async def run(self, leadership: Leadership) -> None:
        """Take the role only while the bus answers, and leave it to another store otherwise."""
        while True:
            while self.is_bus_away:
                await self._clock.sleep(TICK_S)
            await leadership.run(self._watch)

    async def _watch(self, lease: Lease) -> None:
        while not self.is_bus_away:
            await self.expire(lease)
            await self._clock.sleep(TICK_S)

    def account(self) -> None:
        """Move the moment up to which silence counts. After the bus was away, no node counts as
        silent."""
        until_s = self._clock.monotonic_s() - self._bus.since_echo_s()
        if until_s <= self._until_s:
            return
        if until_s - self._until_s > AWAY_AFTER_S:
            self._reports.received_s.update(
                {node: max(last_s, until_s) for node, last_s in self._reports.received_s.items()}
            )
        self._until_s = until_s

    async def expire(self, lease: Lease) -> None:
        """Append the expiry of nodes that have become silent."""
        self.account()
        expired = []
        for node, state in self._reports.nodes.items():
            if state.report is None:
                continue
            silent_s = self._until_s - self._reports.received_s.setdefault(node, self._until_s)
            decision = core.expire(node, state, silent_s, self._report_max_age_s)
            if isinstance(decision, Accepted):
                expired.append((node, state, decision))
                self._out.warning(names.NODE_SILENT, node=node, silent_s=int(silent_s))
        commits = [self._reports.commit(node, decision, lease) for node, _, decision in expired]
        outcomes = await self._reports.append(commits)
        for (node, state, decision), outcome in zip(expired, outcomes, strict=True):
            if isinstance(outcome, Fenced):
                raise LeaseLost(f"{ROLE}: a newer epoch than {lease.epoch} leads")
            if isinstance(outcome, Appended):
                await self._reports.appended(node, state, decision, self._reports.now_ms())
            else:
                await self._reports.refold(node)
        set_gauge(
            names.NODES_SILENT, sum(state.is_silent for state in self._reports.nodes.values())
        )

    async def _look_after_locked(self) -> None:
        """Fold the streams of expired and locked nodes again if they have moved (a release, another
        store), and name locked nodes in health."""
        names_by_stream = {
            streams.report(name): name
            for name, state in self._reports.nodes.items()
            if state.expired or state.locked
        }
        try:
            versions = await self._log.versions(list(names_by_stream)) if names_by_stream else {}
            for stream, version in versions.items():
                state = self._reports.nodes.get(names_by_stream[stream])
                if state is None or version == state.version:
                    continue
                await self._reports.refold(names_by_stream[stream])
                folded = self._reports.nodes.get(names_by_stream[stream])
                if folded is not None and folded.released:
                    self._out.info(names.NODE_RELEASED, node=names_by_stream[stream])
        except LogUnavailable as error:
            self._out.warning(names.LOG_UNAVAILABLE, problem=str(error))
        locked = {
            name: state.locked
            for name, state in self._reports.nodes.items()
            if state.locked and not state.has_left
        }
        for name in self._named - locked.keys():
            self._health.recover(f"node {name}")
        self._named = set(sorted(locked)[:MAX_NAMED])
        for name in self._named:
            self._health.fail(f"node {name}", core.lockout(name, locked[name]))
        set_gauge(names.NODES_LOCKED_OUT, len(locked))
