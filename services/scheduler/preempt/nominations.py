"""Nominations: which pods claim a node that others are evicted for, which of those claims still
make sense, who may be asked.

Folded from the log beside the ledger; the searching is done by whoever places pods. Bounded: a few
searches a batch, one new nomination a batch, so that each stands in the log before the next
decision is made. Must not know the log or a clock.
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
SEARCHES = 2
"""Searches for victims in one batch."""
WANTING = 1_000
"""Pods remembered that would preempt as soon as somebody can be evicted."""


class Searching(Protocol):
    """What is asked of whoever chooses nodes."""

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
        """Would the pod fit its node once the victims that are left are gone?"""


class NoPreemption:
    """Evicts no pod, as with upstream's `preemptionMode: Disabled`: the plugin's caches may be wrong.
    A nomination of another scheduler, or of an earlier configuration, is not kept.
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
        """What the ledger says; refusals are volatile, and who waits has every node searched anew."""
        for uid, entry in ledger.pods.items():
            if entry.nominated:
                self.open[uid] = OpenNomination(entry.nominated, entry.victims)
            elif entry.stage == "pending":
                self._want(entry.pod, searched=False)
            else:
                self._add(uid, entry.pod.priority)

    # -- folding
    # -------------------------------------------------------------------------------------------------

    def hear(self, event: Event, ledger: Ledger) -> None:
        """Fold one fact that the ledger has folded already."""
        told = _HEARD.get(type(event))
        if told is not None:
            told(self, event, ledger)
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
        """The victim is spared for now, and where a budget guards it pods like it."""
        found, entry = self.open.get(event.preemptor), ledger.pods.get(event.uid)
        if found is not None and event.uid in found.victims and event.preemptor not in self._broken:
            self._broken.add(event.preemptor)
            if entry is not None:
                self._refusals.refused(entry.pod, event.message)

    def _new_chances(self, event: cluster.PodRunning, ledger: Ledger) -> None:
        entry = ledger.pods.get(event.uid)
        if entry is not None and self._refusals.started(entry.pod):
            self._search_anew()

    def _search_anew(self) -> None:
        """Who may be asked for again may help whoever waits, on whatever node he stands."""
        self._wanting = {
            uid: (priority, False) for uid, (priority, _searched) in self._wanting.items()
        }

    def _count(self, uid: str, entry: LedgerPod | None) -> None:
        """Who is placed with which priority: whether any eviction could help is then told without a
        look at the nodes.
        """
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
    # --------------------------------------------------------------------------------------------------

    def begin(self, now_s: float) -> None:
        """A batch begins (`now_s`, monotonic)."""
        self._searches = SEARCHES
        if self._refusals.passes(now_s):
            self._search_anew()

    def wake(self, changed: Collection[str]) -> list[str]:
        """Nominees whose node changed, or for whom an eviction was refused: each is decided again,
        whatever its shape.
        """
        woken = [uid for uid, found in self.open.items() if found.node in changed]
        return [*woken, *sorted(self._broken)]

    def waits(self, entry: LedgerPod) -> bool:
        """Others are evicted for it: what it claims itself would read as a new reason to wait."""
        return entry.pod.uid in self.open and not entry.problem

    def refused(
        self,
        entry: LedgerPod,
        placing: Searching,
        ledger: Ledger,
        pod_version: int,
        versions: dict[str, int],
    ) -> Proposal | None:
        """The pod fits nowhere: nominate it, or end a nomination that helps no more."""
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
            ledger.pods, {uid for found in self.open.values() for uid in found.victims}
        )
        found = placing.nominate(pod, ledger.pods, spared, nodes)
        return None if found is None else self._proposal(pod, found, ledger, version, versions)

    def may_preempt(self, pod: Pod) -> bool:
        """Return whether a pod of lower priority is placed anywhere."""
        return pod.preemption_policy == PREEMPTS and pod.priority > min(
            self._priorities, default=pod.priority
        )

    def _want(self, pod: Pod, searched: bool) -> None:
        """Remember the pod, and whether every node was searched for it as the nodes stand; the
        oldest gives way.
        """
        self._wanting.pop(pod.uid, None)
        if pod.preemption_policy != PREEMPTS or (self._priorities and not self.may_preempt(pod)):
            return
        self._wanting[pod.uid] = (pod.priority, searched)
        if len(self._wanting) > WANTING:
            del self._wanting[next(iter(self._wanting))]

    def _proposal(
        self, pod: Pod, found: Nomination, ledger: Ledger, version: int, versions: dict[str, int]
    ) -> Proposal:
        return nomination(
            pod.uid, found, ledger.position, version, versions.get(f"node/{found.node}", 0)
        )

    def waiting(
        self,
        changed: Collection[str],
        placing: Searching,
        ledger: Ledger,
        versions: dict[str, int],
        own: Callable[[str], bool] = lambda _uid: True,
    ) -> Proposal | None:
        """May an eviction make room for a pod of one's `own` that waits for that, on a node that
        changed or, where not all were searched, on any? Those asked go to the end of the line;
        those not asked will have every node searched."""
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
            found = self._search(
                entry.pod, placing, ledger, version, versions, changed if searched else None
            )
            if found is not None:
                return found
        return None


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
"""Facts that say more than where a pod stands."""
