"""The mirror writes a NodeResourceTopology object for each node, with the ledger's free amounts.

Other consumers read these objects. Each node is written at most once in an interval, all nodes
together at a bounded rate, and only if the object differs. Writes no other objects; `mirroring`
decides what is written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from services.topology_store import mirror_fold, mirroring
from services.topology_store.mirror_fold import Mirrored
from services.topology_store.mirroring import Present, Remove, Terms, Write
from services.topology_store.objects import name_of
from shared.eventlog.checkpoints import Form
from shared.eventlog.port import EventLog
from shared.eventlog.snapshots import fingerprint
from shared.events.catalog import Event
from shared.events.envelope import Envelope
from shared.hints import registry
from shared.kube.nrt_mirrored import content, is_mirrored
from shared.kube.port import Answer, Kube, Lost, WatchEvent
from shared.ledger.state import Ledger
from shared.runtime.clock import Clock
from shared.runtime.consumer import ConsumerOptions
from shared.runtime.health import Health
from shared.runtime.projector import Fold, Projector
from shared.telemetry import logs, names
from shared.telemetry.instruments import count, set_gauge

AT_ONCE = 8
# Rounds are seconds apart, so the log is read in few pages: each page has a cost.
LINGER_S = 0.25
# v1alpha1 prunes the attributes, and with them fingerprint and mark.
WRITABLE = "v1alpha2"

Object = dict[str, Any]


class Mirror:
    """A listener of `Objects`; `fold` follows the log, `run` writes."""

    def __init__(
        self, kube: Kube, clock: Clock, terms: Terms, interval_s: float, writes_per_s: float
    ) -> None:
        self._kube = kube
        self._clock = clock
        self._terms = terms
        self._interval_s = interval_s
        self._writes_per_s = writes_per_s
        self._state = Mirrored()
        self._live: Callable[[], bool] = lambda: False
        self._present: dict[str, Present] = {}
        self._writable = False
        self._due: set[str] = set()
        self._out = logs.get("topology mirror")

    def listing(self) -> None:
        """Forget all objects: they come again, and nothing is written before all have come."""
        self._present, self._writable = {}, False

    def complete(self, version: str) -> None:
        """Write from now on, if the API version can store all fields."""
        self._writable = version == WRITABLE
        self._all_due()

    def seen(self, event: WatchEvent) -> None:
        """Compare an object that exists, changed or was deleted."""
        name = name_of(event.object)
        if event.type == "DELETED":
            self._present.pop(name, None)
        else:
            self._present[name] = _present(event.object)
        self._due.add(name)

    def projector(self, log: EventLog, health: Health) -> Projector[Mirrored]:
        fold = Fold(
            Mirrored,
            self._evolve,
            snapshot_key(),
            msgspec.json.encode,
            mirror_fold.load,
            pass_over=mirror_fold.pass_over,
            form=Form(),
            weight=lambda state: len(state.ledger.pods) + len(state.ledger.nodes),
        )
        options = ConsumerOptions(linger_s=LINGER_S)
        projector = Projector(
            "mirror",
            log,
            fold,
            on_reset=self._reset,
            health=health,
            gates_readiness=False,
            options=options,
        )
        self._reset(projector.state)
        self._live = lambda: projector.live
        return projector

    def ledger(self) -> Ledger | None:
        """Return the ledger, or None while the fold has not caught up."""
        return self._state.ledger if self._live() else None

    def _evolve(self, state: Mirrored, envelope: Envelope, event: Event) -> None:
        self._due.update(mirror_fold.evolve(state, envelope, event))

    def _reset(self, state: Mirrored) -> None:
        self._state = state
        self._all_due()

    def _all_due(self) -> None:
        self._due.update(self._state.ledger.nodes, self._present)

    async def run(self) -> None:
        """Write until cancelled, once the fold is live and the objects are listed."""
        while True:
            await self._clock.sleep(self._interval_s)
            if self._live() and self._writable:
                await self._round(self._present)

    async def _round(self, present: dict[str, Present]) -> None:
        due = sorted(self._due | set(self._state.silent_since_us))
        self._due.clear()
        calls = [(name, call) for name in due if (call := self._call(name, present)) is not None]
        for start in range(0, len(calls), AT_ONCE):
            chunk = calls[start : start + AT_ONCE]
            await asyncio.gather(*(self._do(name, call) for name, call in chunk))
            await self._clock.sleep(len(chunk) / self._writes_per_s)
        foreign = sum(not topology.ours for topology in present.values())
        set_gauge(names.TOPOLOGY_OBJECTS, len(present) - foreign, writer="mirror")
        set_gauge(names.TOPOLOGY_OBJECTS, foreign, writer="other")

    def _call(self, name: str, present: dict[str, Present]) -> Write | Remove | None:
        since_us = self._state.silent_since_us.get(name, 0)
        node = self._state.ledger.nodes.get(name)
        wanted = mirroring.wanted(node, since_us, self._clock.now_us(), self._terms)
        return mirroring.step(wanted, present.get(name))

    async def _do(self, name: str, call: Write | Remove) -> None:
        if isinstance(call, Write):
            answer = await self._kube.apply_topology(name, call.object, call.force)
        else:
            answer = await self._kube.delete_topology(name, call.uid, call.resource_version)
        self._answered(name, call, answer)

    def _answered(self, name: str, call: Write | Remove, answer: Answer | Lost) -> None:
        if isinstance(answer, Answer) and (
            answer.ok or (isinstance(call, Remove) and answer.status == 404)
        ):
            if isinstance(call, Write):
                self._keep(name, answer)
            return count(names.MIRRORED, result="written" if isinstance(call, Write) else "deleted")
        self._due.add(name)
        count(names.MIRRORED, result="failed")
        problem = (
            answer.message
            if isinstance(answer, Lost)
            else f"HTTP {answer.status} {answer.reason}: {answer.message}"
        )
        self._out.warning(names.TOPOLOGY_NOT_WRITTEN, node=name, problem=problem)
        return None

    def _keep(self, name: str, answer: Answer) -> None:
        """Keep the object in the answer: the watch shows it later."""
        if name_of(answer.body) == name:
            self._present[name] = _present(answer.body)


def snapshot_key() -> str:
    """Return the fingerprint of all code that shapes the fold's state."""
    return fingerprint(mirror_fold.__name__, "mirror", registry.PROVIDERS)


def _present(topology: Object) -> Present:
    metadata = topology.get("metadata") or {}
    ours = is_mirrored(topology)
    return Present(
        str(metadata.get("uid", "")),
        str(metadata.get("resourceVersion", "")),
        ours,
        content(topology) if ours else 0,
    )
