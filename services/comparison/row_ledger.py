"""Rows that use the ledger: the production scheduler's core on a small in-memory log, with the
topology-store's core in front of it.
"""

from __future__ import annotations

from collections import Counter

import msgspec

from services.comparison.rows import Reservation
from services.scheduler.core import CoreConfig, SchedulerCore
from services.scheduler.reserve.proposals import Proposal
from services.topology_store import core as store
from shared.domain.pod import Pod
from shared.domain.report import Report
from shared.domain.zone_allocation import annotations_of
from shared.events import streams
from shared.events.binding_events import BindIntended, PodBound
from shared.events.catalog import Event
from shared.events.codec import type_of
from shared.events.envelope import Envelope

BATCH = 100
IDLE_S = 1.0
# When the nodes booted, by the reports' clock.
BOOTED_MS = 1_000_000


class LedgerRow:
    """`placements` False leaves only the fingerprint in reports; `resync_s` is the period of an
    upstream cache, 0 for none.
    """

    def __init__(self, config: CoreConfig, placements: bool = True, resync_s: float = 0.0) -> None:
        self.core = SchedulerCore(config)
        self._placements = placements
        self._resync_s = self._resync_at_s = resync_s
        self._known: dict[str, store.NodeState] = {}
        self._versions: dict[str, int] = {}
        self._commits: set[str] = set()
        self._now_us = 0

    clairvoyant = False

    def happened(self, node: str) -> None:
        """Ignore it: this row gets no such calls."""

    def evolve(self, stream: str, event: Event, now_s: float) -> None:
        self._now_us = _time_us(now_s)
        self._append(stream, event)

    def reported(self, report: Report, now_s: float) -> None:
        if not self._placements:
            report = msgspec.structs.replace(report, placements=None)
        accepted = self._known.setdefault(report.node, store.initial())
        at_ms = BOOTED_MS + int(now_s * 1000) + 1
        decision = store.decide(accepted, report, at_ms)
        if isinstance(decision, store.Accepted):
            version = self._append(streams.report(report.node), decision.event)
            self._known[report.node] = store.evolve(accepted, decision.event, version, at_ms)

    def decide(self, now_s: float) -> list[Reservation]:
        if self._resync_s and now_s >= self._resync_at_s:
            self._resync_at_s = now_s + self._resync_s
            self.core.tick()
        return [
            (part.uid, part.node)
            for proposal in self.proposed(now_s)
            if self._appended(proposal)
            for part in proposal.pods
            if part.uid and part.node and not self.is_booking(part.uid)
        ]

    def is_booking(self, uid: str) -> bool:
        """Return whether it is a booking, which is never bound."""
        entry = self.core.ledger.pods.get(uid)
        return entry is not None and entry.booking is not None

    def proposed(self, now_s: float) -> list[Proposal]:
        """Return the proposals of the core, before they are appended."""
        self._now_us = _time_us(now_s)
        return self.core.decide(BATCH, now_s, now_us=self._now_us)

    def intends(self, pod: Pod, node: str, now_s: float) -> dict[str, str]:
        position = self.core.ledger.pods[pod.uid].reserved_at
        self._append(
            streams.pod(pod.uid), BindIntended(pod.uid, pod.namespace, pod.name, node, position)
        )
        allocation = self.core.ledger.pods[pod.uid].allocation
        return annotations_of(allocation) if allocation is not None else {}

    def bound(self, pod: Pod, node: str, now_s: float) -> None:
        self._append(streams.pod(pod.uid), PodBound(pod.uid, node))

    def next_s(self, now_s: float) -> float | None:
        """Return the next time to decide: once a second while pods wait."""
        return now_s + IDLE_S if self.waiting() else None

    def waiting(self) -> int:
        return len(self.core.queue)

    def visible_cpu(self, node: str) -> dict[int, int]:
        """Return the guaranteed free CPUs of a node. The kubelet search may know more: this counts
        unconfirmed pods in every possible zone.
        """
        ledger_node = self.core.ledger.nodes[node]
        return {
            zone: max(0, amounts.get("cpu", 0)) for zone, amounts in ledger_node.free_min.items()
        }

    def _appended(self, proposal: Proposal) -> bool:
        """Append a proposal as the log would. The core learns of duplicates and conflicts."""
        made, stale = Counter[str](), False
        for draft in proposal.drafts:
            version = self._versions.get(draft.stream, 0) + made[draft.stream]
            stale |= 0 <= draft.expected != version
            made[draft.stream] += 1
        if stale or proposal.commit_id in self._commits:
            self.core.conflicted(proposal)
            return False
        self._commits.add(proposal.commit_id)
        for draft in proposal.drafts:
            self._append(draft.stream, draft.event)
        return True

    def _append(self, stream: str, event: Event) -> int:
        version = self._versions[stream] = self._versions.get(stream, 0) + 1
        position = self.core.ledger.position + 1
        kind, time_us = type_of(event), self._now_us
        self.core.evolve(
            Envelope(position, stream, version, kind, 1, b"", time_us, "bench", 0, ""), event
        )
        return version


def _time_us(now_s: float) -> int:
    """Return the time of day in microseconds: virtual time begins at 1 s."""
    return int((1 + now_s) * 1_000_000)
