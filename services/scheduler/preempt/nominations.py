"""Nominations: which pods claim a node from which others are evicted, which of those claims still
make sense, and for which pod victims are searched next.

Folded from the log next to the ledger; the placing searches. Bounded: a few searches and one new
nomination a turn, so that each nomination is in the log before the next decision. Must not know the
log or a clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Container, Mapping
from typing import Any, Protocol

import msgspec

from services.scheduler.preempt.eviction_refusals import EvictionRefusals
from services.scheduler.reserve.proposals import Proposal, nomination, nomination_withdrawal
from services.scheduler.snapshot.result import Nomination
from shared.domain.pod import Pod
from shared.events import binding_events as binding
from shared.events import cluster_events as cluster
from shared.events import scheduling_events as scheduling
from shared.events.catalog import Event
from shared.ledger.state import Ledger, LedgerPod

PREEMPTS = "PreemptLowerPriority"
# Searches for victims in one turn.
SEARCHES = 2
# Pods remembered that would preempt as soon as a pod can be evicted.
WANTING = 1_000


class Searching(Protocol):
    """The questions to the component that chooses nodes."""

    def nominate(
        self,
        pod: Pod,
        pods: Mapping[str, LedgerPod],
        spared: Container[str],
        nodes: Collection[str] | None,
    ) -> Nomination | None:
        """The least costly evictions that make room for the pod, on any node or on these; None when
        none does.
        """

    def nomination_still_valid(
        self, pod: Pod, node: str, victims: Collection[str], pods: Mapping[str, LedgerPod]
    ) -> bool:
        """Return whether the pod would fit its node once the remaining victims ended."""


class NoPreemption:
    """Evicts no pod, as with upstream's `preemptionMode: Disabled`: the plugin's caches may be
    wrong. A nomination of another scheduler, or of an earlier configuration, is not kept.
    """

    def nominate(
        self,
        pod: Pod,
        pods: Mapping[str, LedgerPod],
        spared: Container[str],
        nodes: Collection[str] | None,
    ) -> Nomination | None:
        return None

    def nomination_still_valid(
        self, pod: Pod, node: str, victims: Collection[str], pods: Mapping[str, LedgerPod]
    ) -> bool:
        return False


NO_PREEMPTION = NoPreemption()


class OpenNomination(msgspec.Struct, frozen=True):
    """One nomination that the log holds."""

    node: str
    victims: tuple[str, ...]


class Nominations:
    """The fold of nominations and what is asked next."""

    def __init__(self, ledger: Ledger) -> None:
        self.open: dict[str, OpenNomination] = {}
        self._refusals = EvictionRefusals()
        self._broken: set[str] = set()
        self._wanting: dict[str, tuple[int, bool]] = {}
        self._placed: dict[str, int] = {}
        self._priorities: Counter[int] = Counter()
        self._searches = 0
        self._restore(ledger)

    def _restore(self, ledger: Ledger) -> None:
        # Refusals are volatile, and every node is searched again for waiting pods.
        for uid, entry in ledger.pods.items():
            if entry.nominated:
                self.open[uid] = OpenNomination(entry.nominated, entry.victims)
            elif entry.stage == "pending":
                self._want(entry.pod, searched=False)
            else:
                self._add(uid, entry.pod.priority)

    # -- folding
    # ----------------------------------------------------------------------------------------------

    def hear(self, event: Event, ledger: Ledger) -> None:
        """Fold one event that the ledger has folded already."""
        fold = _HEARD.get(type(event))
        if fold is not None:
            fold(self, event, ledger)
        uid = event.about.pod
        if uid:
            self._count(uid, ledger.pods.get(uid))

    def _nominated(self, event: scheduling.PodNominated, ledger: Ledger) -> None:
        self.open[event.uid] = OpenNomination(event.node, event.victims)
        self._wanting.pop(event.uid, None)

    def _ended(
        self,
        event: scheduling.NominationWithdrawn | scheduling.PodReserved | cluster.PodEnded,
        ledger: Ledger,
    ) -> None:
        self._forget(event.uid)

    def _seen(self, event: cluster.PodObserved, ledger: Ledger) -> None:
        if event.node:
            self._forget(event.pod.uid)

    def _forget(self, uid: str) -> None:
        self.open.pop(uid, None)
        self._wanting.pop(uid, None)
        self._refusals.forget(uid)
        self._broken.discard(uid)

    def _refusal(self, event: binding.EvictRefused, ledger: Ledger) -> None:
        # The victim is spared for now, and pods like it if a budget guards it.
        nomination, entry = self.open.get(event.preemptor), ledger.pods.get(event.uid)
        if nomination is None or event.uid not in nomination.victims:
            return
        if event.preemptor not in self._broken:
            self._broken.add(event.preemptor)
            if entry is not None:
                self._refusals.refused(entry.pod, event.message)

    def _new_chances(self, event: cluster.PodRunning, ledger: Ledger) -> None:
        entry = ledger.pods.get(event.uid)
        if entry is not None and self._refusals.started(entry.pod):
            self._search_again()

    def _search_again(self) -> None:
        # A victim became evictable again: every waiting preemptor searches all nodes.
        self._wanting = {
            uid: (priority, False) for uid, (priority, _searched) in self._wanting.items()
        }

    def _count(self, uid: str, entry: LedgerPod | None) -> None:
        # Priorities of placed pods show without a look at nodes whether an eviction could help.
        if entry is not None and entry.stage != "pending":
            if uid not in self._placed:
                self._add(uid, entry.pod.priority)
        elif uid in self._placed:
            self._remove(uid)

    def _add(self, uid: str, priority: int) -> None:
        self._placed[uid] = priority
        self._priorities[priority] += 1

    def _remove(self, uid: str) -> None:
        priority = self._placed.pop(uid)
        self._priorities[priority] -= 1
        if not self._priorities[priority]:
            del self._priorities[priority]

    def _recount(self, event: cluster.NodeEnded, ledger: Ledger) -> None:
        for uid in [uid for uid in self._placed if uid not in ledger.pods]:
            self._remove(uid)

    # -- asking
    # ----------------------------------------------------------------------------------------------

    def begin(self, now_s: float) -> None:
        """Begin a turn (`now_s` is monotonic)."""
        self._searches = SEARCHES
        if self._refusals.passes(now_s):
            self._search_again()

    def wake(self, changed: Collection[str]) -> list[str]:
        """Return the nominees whose node changed, or for whom an eviction was refused: each is
        decided again, whatever its pod class.
        """
        woken = [uid for uid, nomination in self.open.items() if nomination.node in changed]
        return [*woken, *sorted(self._broken)]

    def waits(self, entry: LedgerPod) -> bool:
        """Return whether other pods are evicted for it."""
        return entry.pod.uid in self.open and not entry.problem

    def refused(
        self,
        entry: LedgerPod,
        placing: Searching,
        ledger: Ledger,
        pod_version: int,
        versions: dict[str, int],
    ) -> Proposal | None:
        """Nominate a pod that fits nowhere, or end its nomination if that no longer helps."""
        nomination = self.open.get(entry.pod.uid)
        if nomination is not None:
            return self._revised(entry.pod, nomination, placing, ledger, pod_version)
        return self._search(entry.pod, placing, ledger, pod_version, versions, None)

    def _revised(
        self, pod: Pod, nomination: OpenNomination, placing: Searching, ledger: Ledger, version: int
    ) -> Proposal | None:
        if pod.uid in self._broken:
            cause = "an eviction was refused"
        elif not placing.nomination_still_valid(
            pod, nomination.node, nomination.victims, ledger.pods
        ):
            cause = "the evictions no longer make room"
        else:
            return None
        return nomination_withdrawal(pod.uid, nomination.node, cause, ledger.position, version)

    def _search(
        self,
        pod: Pod,
        placing: Searching,
        ledger: Ledger,
        version: int,
        versions: dict[str, int],
        nodes: Collection[str] | None,
    ) -> Proposal | None:
        self._want(pod, self._searches > 0)
        if self._searches <= 0 or not self.may_preempt(pod):
            return None
        self._searches -= 1
        spared = self._refusals.spared(
            ledger.pods, {uid for claim in self.open.values() for uid in claim.victims}
        )
        result = placing.nominate(pod, ledger.pods, spared, nodes)
        return None if result is None else self._proposal(pod, result, ledger, version, versions)

    def may_preempt(self, pod: Pod) -> bool:
        """Return whether a pod of lower priority is placed anywhere."""
        return pod.preemption_policy == PREEMPTS and pod.priority > min(
            self._priorities, default=pod.priority
        )

    def _want(self, pod: Pod, searched: bool) -> None:
        """Remember the pod, and whether every node was searched for it; the oldest is dropped."""
        self._wanting.pop(pod.uid, None)
        if pod.preemption_policy != PREEMPTS or (self._priorities and not self.may_preempt(pod)):
            return
        self._wanting[pod.uid] = (pod.priority, searched)
        if len(self._wanting) > WANTING:
            del self._wanting[next(iter(self._wanting))]

    def _proposal(
        self, pod: Pod, result: Nomination, ledger: Ledger, version: int, versions: dict[str, int]
    ) -> Proposal:
        node_version = versions.get(f"node/{result.node}", 0)
        return nomination(pod.uid, result, ledger.position, version, node_version)

    def waiting(
        self,
        changed: Collection[str],
        placing: Searching,
        ledger: Ledger,
        versions: dict[str, int],
        own: Callable[[str], bool] = lambda _uid: True,
    ) -> Proposal | None:
        """Search victims for a waiting pod of our `own`, on the changed nodes, or on all if not all
        were searched. Pods that are searched for go to the end of the line; the others will have
        every node searched."""
        lowest = min(self._priorities, default=0)
        wanting = [(uid, *wanted) for uid, wanted in self._wanting.items() if own(uid)]
        may = [
            uid
            for uid, priority, searched in wanting
            if priority > lowest and (changed or not searched)
        ]
        for uid in may[SEARCHES:] if changed else ():
            self._wanting[uid] = (self._wanting[uid][0], False)
        for uid in may[:SEARCHES]:
            (_, searched), entry = self._wanting.pop(uid), ledger.pods.get(uid)
            if entry is None or entry.stage != "pending" or entry.terminating or uid in self.open:
                continue
            version = versions.get(f"pod/{uid}", 0)
            proposal = self._search(
                entry.pod, placing, ledger, version, versions, changed if searched else None
            )
            if proposal is not None:
                return proposal
        return None


# Events that concern more than the place of a pod.
_HEARD: dict[type[Event], Callable[[Nominations, Any, Ledger], None]] = {
    scheduling.PodNominated: Nominations._nominated,
    scheduling.NominationWithdrawn: Nominations._ended,
    scheduling.PodReserved: Nominations._ended,
    cluster.PodEnded: Nominations._ended,
    cluster.PodObserved: Nominations._seen,
    cluster.PodRunning: Nominations._new_chances,
    cluster.NodeEnded: Nominations._recount,
    binding.EvictRefused: Nominations._refusal,
}
