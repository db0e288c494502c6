"""Helpers for tests of the topology-store: short reports, and a node's stream folded from the
events of its decisions.
"""

from __future__ import annotations

import asyncio

import msgspec

from services.topology_store import core, following
from services.topology_store.core import Accepted, Decision, NodeState
from services.topology_store.handlers import Reports
from shared.bus import subjects
from shared.bus.port import Message
from shared.domain.report import Placement, Report, Zone
from shared.eventlog.port import EventLog
from shared.events.codec import decode
from shared.events.report_events import NodeReleased
from tests.ledger.given import held, zone


def report(
    at: int = 1, boot: str = "boot-1", free: int = 8, node: str = "n1", **fields: object
) -> Report:
    """Return a report of a node with two zones of 8 CPUs, of which `free` are free in zone 0."""
    settings: dict[str, object] = {
        "policy": "single-numa-node",
        "tracked": ("cpu",),
        "zones": (zone(0, 8, free), zone(1, 8)),
        "placements": (),
        **fields,
    }
    return Report(node, boot, at, str(settings.pop("exporter", "exporter-1")), **settings)  # type: ignore[arg-type]


def lists(*names: str) -> tuple[Placement, ...]:
    """Return placements of pods with one CPU each in zone 0."""
    return tuple(held(name, 0, 1) for name in names)


def without_zone(made: Report, zone_id: int) -> tuple[Zone, ...]:
    """Return the report without one zone."""
    return tuple(zone for zone in made.zones if zone.id != zone_id)


class Hands:
    """A clock that moves only on demand; sleeping lets other tasks run."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def now_us(self) -> int:
        return int(self.now_s * 1e6)

    def monotonic_s(self) -> float:
        return self.now_s

    async def sleep(self, delay_s: float) -> None:
        await asyncio.sleep(0)


def message(made: Report) -> Message:
    """Return the report as a message of the bus."""
    return Message(subjects.report(made.node), msgspec.json.encode(made))


class Node:
    """One node's stream: every accepted report is folded at once. `now_ms` is the clock in Unix
    milliseconds.
    """

    def __init__(self, now_ms: int = 10**12) -> None:
        self.known: NodeState = core.initial()
        self.now_ms = now_ms
        self.events: list[object] = []

    def take(self, made: Report, at_ms: int = 0) -> Decision:
        """Take a report that the bus got now or at `at_ms`."""
        decision = self._fold(core.decide(self.known, made, at_ms or self.now_ms))
        if not isinstance(decision, Accepted):
            core.note_ignored(self.known, made, decision, at_ms or self.now_ms)
        return decision

    def release(self) -> None:
        """Release the node, so that the next report counts."""
        core.evolve(self.known, NodeReleased("n1"), self.known.version + 1, self.now_ms)

    def silent(self, seconds: float, max_age_s: float = 30.0) -> Decision:
        return self._fold(core.expire("n1", self.known, seconds, max_age_s))

    def _fold(self, decision: Decision) -> Decision:
        if isinstance(decision, Accepted):
            assert decision.expected == self.known.version
            core.evolve(self.known, decision.event, decision.expected + 1, self.now_ms)
            self.events.append(decision.event)
        return decision

    def kinds(self) -> list[str]:
        """Return the types of the events, in order."""
        return [type(event).__name__ for event in self.events]


async def load(reports: Reports, log: EventLog) -> None:
    """Fold the current log, as the projector does before the store begins."""
    for envelope in await log.read(0, 10_000):
        following.evolve(reports.nodes, envelope, decode(envelope))
    reports.reset(reports.nodes)
