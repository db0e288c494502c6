"""The invariants of ARCHITECTURE.md that the log alone can show, as a fold over all events. Pure.

S1 positions, S2 versions, S3 epochs by role, S5 one binding per uid, S7 reservation before intent
before effect, S9 no charges without pods. The caller checks S6 (equal positions, equal hashes),
because it knows the live hashes. "history" means that each row is unchanged, by the hash chain.
"facts" means that each event can be read and folded; a stream with an unreadable event is
quarantined, as in the services.
"""

from __future__ import annotations

import msgspec

from services.replay.reading import fold_one
from shared.eventlog.chain import BEGINNING, linked
from shared.events import binding_events as binding
from shared.events import cluster_events as cluster
from shared.events.catalog import Event
from shared.events.envelope import Envelope
from shared.events.quarantine import QuarantinedStreams
from shared.ledger.state import Ledger
from shared.ledger.view import compute_free_max, compute_free_min

VIOLATION_LIMIT = 100


class Violation(msgspec.Struct, frozen=True):
    """One broken invariant, and the position at which it was seen."""

    invariant: str
    position: int
    message: str


class Audit(msgspec.Struct):
    """The running check. `ledger` is the fold from position 1, `redacted` maps a position to the
    SHA-256 (hex) of the masked text.
    """

    ledger: Ledger = msgspec.field(default_factory=Ledger)
    violations: list[Violation] = []
    versions: dict[str, int] = {}
    epochs: dict[str, int] = {}
    intents: dict[str, str] = {}
    bound: dict[str, str] = {}
    rejected: int = 0
    quarantined: QuarantinedStreams = msgspec.field(default_factory=QuarantinedStreams)
    chain: bytes = BEGINNING
    chained: bool = False
    redacted: dict[int, str] = {}

    def see(self, envelope: Envelope) -> None:
        """Check one event and fold it, as far as it can be read."""
        self._order(envelope)
        self._history(envelope)
        self._writer(envelope)
        quarantined_before = len(self.quarantined.streams)
        event, _ = fold_one(self.ledger, envelope, self.quarantined)
        if len(self.quarantined.streams) > quarantined_before:
            self._violated("facts", envelope.position, self.quarantined.streams[envelope.stream])
        if event is not None:
            self._effects(envelope, event)

    def finish(self) -> list[Violation]:
        """Check what must hold at the head. Returns all violations."""
        for node in self.ledger.nodes.values():
            if not self.ledger.pods and node.charges:
                self._violated(
                    "S9",
                    self.ledger.position,
                    f"node {node.name} is charged for {sorted(node.charges)} with no live pods",
                )
            if node.free_min != compute_free_min(node) or node.free_max != compute_free_max(node):
                self._violated(
                    "ledger",
                    self.ledger.position,
                    f"bounds of node {node.name} differ from those of a second computation",
                )
        return self.violations

    def _violated(self, invariant: str, position: int, message: str) -> None:
        if len(self.violations) < VIOLATION_LIMIT:
            self.violations.append(Violation(invariant, position, message))

    def _order(self, envelope: Envelope) -> None:
        if envelope.position != self.ledger.position + 1:
            self._violated("S1", envelope.position, f"follows position {self.ledger.position}")
            self.ledger.position = envelope.position - 1
        expected = self.versions.get(envelope.stream, 0) + 1
        if envelope.version != expected:
            self._violated(
                "S2",
                envelope.position,
                f"{envelope.stream} has version {envelope.version}, not {expected}",
            )
        self.versions[envelope.stream] = envelope.version

    def _history(self, envelope: Envelope) -> None:
        """Check the hash chain. The first row with a chain covers all older rows."""
        computed = linked(self.chain, envelope)
        digest = self.redacted.get(envelope.position, "")
        if digest and envelope.chain != computed:
            computed = linked(self.chain, envelope, bytes.fromhex(digest))
        if envelope.chain != computed and (envelope.chain or self.chained):
            self._violated(
                "history",
                envelope.position,
                "the row is not what was appended (or one before it that has no chain)",
            )
        self.chained = self.chained or bool(envelope.chain)
        self.chain = envelope.chain or computed

    def _writer(self, envelope: Envelope) -> None:
        if envelope.epoch == 0:
            return
        newest = self.epochs.get(envelope.role, 0)
        if envelope.epoch < newest:
            self._violated(
                "S3",
                envelope.position,
                f"{envelope.role} wrote with epoch {envelope.epoch} after {newest}",
            )
        self.epochs[envelope.role] = max(newest, envelope.epoch)

    def _effects(self, envelope: Envelope, event: Event) -> None:
        if isinstance(event, binding.BindIntended):
            self.intents[event.uid] = event.node
            pod = self.ledger.pods.get(event.uid)
            if pod is None or (pod.node != event.node and pod.stage not in ("bound", "running")):
                self._violated(
                    "S7",
                    envelope.position,
                    f"pod {event.uid} is to be bound to {event.node}, where it is not reserved",
                )
        elif isinstance(event, binding.PodBound):
            if self.intents.get(event.uid) != event.node:
                self._violated(
                    "S7",
                    envelope.position,
                    f"pod {event.uid} bound to {event.node} without an intent for it",
                )
            if event.uid in self.bound:
                self._violated(
                    "S5",
                    envelope.position,
                    f"pod {event.uid} bound to {event.node}, before to {self.bound[event.uid]}",
                )
            self.bound[event.uid] = event.node
        elif isinstance(event, cluster.PodEnded):
            self.rejected += event.cause == "rejected"
            self.bound.pop(
                event.uid, None
            )  # the same uid comes again only in a cluster that was set back
