"""S14, judged from the log by plain counts.

A commit that reserves a pod of a gang leaves the gang with its minimum: of pods that have been
bound since the gang had no pod, of reservations, and of its own. Must not know how gangs are
placed.
"""

from __future__ import annotations

from collections.abc import Iterator

from shared.events import binding_events as binding
from shared.events import cluster_events as cluster
from shared.events.catalog import Event
from shared.events.envelope import Envelope
from shared.events.scheduling_events import PodReserved, ReservationWithdrawn
from shared.ledger.state import Ledger, LedgerPod


class GangChecks:
    """`bound` has the pods of each gang that had a node at some time, while the gang has pods."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.bound: dict[str, set[str]] = {}
        # Commit id -> gang, its minimum, pods with a node before, pods of the commit, its claim.
        self._commits: dict[str, tuple[str, int, int, list[str], int]] = {}

    def note(self, envelope: Envelope, event: Event) -> str:
        """Note an event that the ledger has folded; return its mark, "" for none."""
        if isinstance(event, PodReserved):
            return self._reserved(envelope, event)
        if isinstance(event, ReservationWithdrawn) and event.cause == "gang":
            return "gang withdrawn"
        kinds = binding.PodBound | cluster.PodRunning | cluster.PodObserved
        entry = self._ledger.pods.get(event.about.pod)
        if isinstance(event, kinds) and entry is not None and entry.node and entry.pod.gang:
            self.bound.setdefault(entry.pod.gang.key, set()).add(entry.pod.uid)
        if isinstance(event, cluster.PodEnded | binding.BindRefused):
            keys = {entry.pod.gang.key for entry in self._ledger.pods.values() if entry.pod.gang}
            self.bound = {key: uids for key, uids in self.bound.items() if key in keys}
        return ""

    def _reserved(self, envelope: Envelope, event: PodReserved) -> str:
        entry = self._ledger.pods.get(event.uid)
        if entry is None or entry.pod.gang is None:
            return ""
        gang = entry.pod.gang
        bound_before = self.placed(gang.key) - (event.uid not in self.bound.get(gang.key, ()))
        start = gang.key, gang.minimum, bound_before, list[str](), event.gang
        self._commits.setdefault(envelope.commit_id, start)[3].append(event.uid)
        return "gang reserved" if event.gang else "pod of a gang reserved by itself"

    def placed(self, key: str) -> int:
        """Return how many pods of the gang were bound, or are reserved."""
        on_their_way = {entry.pod.uid for entry in self.pods(key) if entry.stage != "pending"}
        return len(on_their_way | self.bound.get(key, set()))

    def pods(self, key: str) -> list[LedgerPod]:
        """Return the live pods of the gang."""
        pods = self._ledger.pods.values()
        return [entry for entry in pods if entry.pod.gang and entry.pod.gang.key == key]

    def broken(self) -> Iterator[str]:
        """Yield what the commits since the last call break."""
        for commit_id, (key, minimum, placed, uids, claimed) in self._commits.items():
            if placed + len(uids) < minimum:
                yield f"S14: {commit_id} leaves {key} with {placed} and {len(uids)} of {minimum}"
            if claimed not in (0, len(uids)):
                yield f"S14: {commit_id} reserves {len(uids)} of {key} and says {claimed}"
        self._commits.clear()
