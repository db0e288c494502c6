"""S14, judged from the log by plain counts.

A commit that reserves a pod of a gang leaves the gang with its minimum: of pods that have been
bound since the gang had no pod, of reservations, and of its own. Pods that ended in a roll-back do
not count. Must not know how gangs are placed.
"""

from __future__ import annotations

from collections.abc import Iterator

from shared.events import binding_events as binding
from shared.events import cluster_events as cluster
from shared.events.catalog import Event
from shared.events.envelope import Envelope
from shared.events.scheduling_events import GangRolledBack, PodReserved, ReservationWithdrawn
from shared.ledger.state import Ledger, LedgerPod
from tests.simulation.manifests import OURS


class GangChecks:
    """`bound` has the pods of each gang that had a node at some time, while the gang has pods."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.bound: dict[str, set[str]] = {}
        # Pods of gangs that are rolled back, and whether they were evicted.
        self._yielding: dict[str, bool] = {}
        # Gangs that were bound in part when another one yielded.
        self._waited: set[str] = set()
        # Commit id -> gang, its minimum, pods with a node before, pods of the commit, its claim.
        self._commits: dict[str, tuple[str, int, int, list[str], int]] = {}

    def note(self, envelope: Envelope, event: Event) -> str:
        """Note an event that the ledger has folded; return its mark, "" for none."""
        if isinstance(event, PodReserved):
            return self._reserved(envelope, event)
        if isinstance(event, ReservationWithdrawn) and event.cause == "gang":
            return "gang withdrawn"
        if isinstance(event, GangRolledBack):
            return self._rolled_back(event)
        self._note_eviction(event)
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
        if gang.key in self._waited and self.placed(gang.key) >= gang.minimum:
            self._waited.remove(gang.key)
            return "gang whole after another yielded"
        return "gang reserved" if event.gang else "pod of a gang reserved by itself"

    def _rolled_back(self, event: GangRolledBack) -> str:
        self._waited = {key for key in self.bound if self.is_in_part(key)} - {event.gang}
        self._yielding |= dict.fromkeys(event.uids, False)
        return "gang rolled back" + (", another waits" if self._waited else "")

    def _note_eviction(self, event: Event) -> None:
        uid = event.about.pod
        if uid not in self._yielding:
            return
        if isinstance(event, cluster.PodEnded):
            del self._yielding[uid]
            for uids in self.bound.values():
                uids.discard(uid)
        elif isinstance(event, binding.PodEvicted):
            self._yielding[uid] = True
        elif isinstance(event, binding.EvictRefused):
            keys = {key for key, uids in self.bound.items() if uid in uids}
            of_gang = {uid for key in keys for uid in self.bound[key]}
            self._yielding = {
                uid: gone for uid, gone in self._yielding.items() if gone or uid not in of_gang
            }

    def is_in_part(self, key: str) -> bool:
        """Return whether pods of the gang hold nodes, and the minimum never did; False if another
        scheduler has pods of it.
        """
        entries = self.pods(key)
        if not entries or {entry.pod.scheduler_name for entry in entries} != {OURS}:
            return False
        assert entries[0].pod.gang is not None
        has_node = any(entry.node and entry.stage != "reserved" for entry in entries)
        return has_node and len(self.bound.get(key, ())) < entries[0].pod.gang.minimum

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
