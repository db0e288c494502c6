"""Nominations: which pods claim a node from which other pods are evicted, which of these claims
still help, and for which pod victims are searched next.

Folded from the log next to the ledger; `Searching` finds the victims. A turn makes a few searches
and at most one new nomination, so that each nomination is in the log before the next decision. This
module does not know the log or a clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Container, Mapping
from typing import Any, Protocol

import msgspec

from services.scheduler.reserve.proposals import Proposal, nomination, nomination_withdrawal
from services.scheduler.snapshot.result import Nomination
from services.scheduler.state.state import SchedulerState
from shared.domain.pod import Pod
from shared.events import binding_events as binding
from shared.events import cluster_events as cluster
from shared.events import scheduling_events as scheduling
from shared.events import streams
from shared.events.catalog import Event
from shared.ledger.state import LedgerPod

PREEMPTS = "PreemptLowerPriority"
# Searches for victims in one turn.
SEARCHES = 2
# Pods remembered that would preempt as soon as a pod can be evicted.
WANTING = 1_000
# Part of the API server's message if a budget refuses, not a policy (kube-apiserver 1.36,
# recordings D).
BUDGET = "disruption budget"
# Seconds until the eviction of a similar pod is tried, and of the victim itself, which may be the
# only pod that a budget guards.
ALIKE_AGAIN_S, ITSELF_AGAIN_S = 10.0, 60.0
# Labels that distinguish pods of one workload; budgets do not select by them.
OF_ONE_POD = frozenset(
    (
        "apps.kubernetes.io/pod-index",
        "batch.kubernetes.io/job-completion-index",
        "controller-revision-hash",
        "pod-template-generation",
        "pod-template-hash",
        "statefulset.kubernetes.io/pod-name",
    )
)

Alike = tuple[str, frozenset[tuple[str, str]]]


class Searching(Protocol):
    """What nominations ask of the component that chooses nodes."""

    def nominate(
        self,
        pod: Pod,
        pods: Mapping[str, LedgerPod],
        spared: Container[str],
        nodes: Collection[str] | None,
    ) -> Nomination | None:
        """Return the least costly evictions that make room for the pod, on `nodes` or, for None, on
        any node; None if no evictions do.
        """

    def nomination_still_valid(
        self, pod: Pod, node: str, victims: Collection[str], pods: Mapping[str, LedgerPod]
    ) -> bool:
        """Return whether the pod would fit its node once the remaining victims ended."""


class OpenNomination(msgspec.Struct, frozen=True):
    """One nomination that the log holds."""

    node: str
    victims: tuple[str, ...]


class Nominations:
    """The fold of nominations, and the order of the next searches.

    `open` are nominations by pod uid. `_wanting` are waiting pods that would preempt: their
    priority, and whether every node was searched for them. `_placed` are priorities of placed pods
    by uid, `_priorities` their counts: they show without a look at nodes whether an eviction could
    help.

    Without `searching` no pod is evicted, as with upstream's `preemptionMode: Disabled`, because
    the plugin's caches may be wrong. Nominations of other schedulers, or of an earlier
    configuration, are then withdrawn.
    """

    def __init__(self, state: SchedulerState, searching: Searching | None) -> None:
        self._state, self._ledger, self._versions = state, state.ledger, state.versions
        self._searching = searching
        self.open: dict[str, OpenNomination] = {}
        self._refusals = EvictionRefusals()
        self._broken: set[str] = set()
        self._wanting: dict[str, tuple[int, bool]] = {}
        self._placed: dict[str, int] = {}
        self._priorities: Counter[int] = Counter()
        self._searches = 0
        # Refusals are volatile, and every node is searched again for waiting pods.
        for uid, entry in self._ledger.pods.items():
            if entry.nominated:
                self.open[uid] = OpenNomination(entry.nominated, entry.victims)
            elif entry.stage == "pending":
                self._want(entry.pod, searched=False)
            else:
                self._add(uid, entry.pod.priority)

    # -- folding

    def evolve(self, event: Event) -> None:
        """Fold one event that the ledger has folded already."""
        match event:
            case scheduling.PodNominated():
                self.open[event.uid] = OpenNomination(event.node, event.victims)
                self._wanting.pop(event.uid, None)
            case (
                scheduling.NominationWithdrawn()
                | scheduling.PodReserved()
                | scheduling.BookingEnded()
                | cluster.PodEnded()
            ):
                self._forget(event.uid)
            case cluster.PodObserved() if event.node:
                self._forget(event.pod.uid)
            case cluster.PodRunning():
                entry = self._ledger.pods.get(event.uid)
                if entry is not None and self._refusals.started(entry.pod):
                    self._search_again()
            case cluster.NodeEnded():
                for uid in [uid for uid in self._placed if uid not in self._ledger.pods]:
                    self._remove(uid)
            case binding.EvictRefused():
                self._eviction_refused(event)
            case _:
                pass
        if uid := event.about.pod:
            self._count(uid, self._ledger.pods.get(uid))

    def _forget(self, uid: str) -> None:
        self.open.pop(uid, None)
        self._wanting.pop(uid, None)
        self._refusals.forget(uid)
        self._broken.discard(uid)

    def _eviction_refused(self, event: binding.EvictRefused) -> None:
        # The victim is spared for now, and pods like it if a budget guards it.
        nomination, entry = self.open.get(event.preemptor), self._ledger.pods.get(event.uid)
        if nomination is None or event.uid not in nomination.victims:
            return
        if event.preemptor not in self._broken:
            self._broken.add(event.preemptor)
            if entry is not None:
                self._refusals.refused(entry.pod, event.message)

    def _search_again(self) -> None:
        # A victim became evictable again: every waiting preemptor searches all nodes.
        self._wanting = {
            uid: (priority, False) for uid, (priority, _searched) in self._wanting.items()
        }

    def _count(self, uid: str, entry: LedgerPod | None) -> None:
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

    # -- searching

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

    def refused(self, pod: Pod) -> Proposal | None:
        """Nominate a pod that fits nowhere, or withdraw its nomination if that no longer helps."""
        nomination = self.open.get(pod.uid)
        return self._search(pod, None) if nomination is None else self._revised(pod, nomination)

    def _revised(self, pod: Pod, nomination: OpenNomination) -> Proposal | None:
        node, victims, searching = nomination.node, nomination.victims, self._searching
        if pod.uid in self._broken:
            cause = "an eviction was refused"
        elif searching is None or not searching.nomination_still_valid(
            pod, node, victims, self._ledger.pods
        ):
            cause = "the evictions no longer make room"
        else:
            return None
        version = self._versions.get(streams.pod(pod.uid), 0)
        return nomination_withdrawal(pod.uid, node, cause, self._ledger.position, version)

    def _search(self, pod: Pod, nodes: Collection[str] | None) -> Proposal | None:
        self._want(pod, self._searches > 0)
        if self._searching is None or self._searches <= 0 or not self.may_preempt(pod):
            return None
        self._searches -= 1
        pods, victims = (
            self._ledger.pods,
            {uid for claim in self.open.values() for uid in claim.victims},
        )
        result = self._searching.nominate(pod, pods, self._refusals.spared(pods, victims), nodes)
        if result is None:
            return None
        pod_version = self._versions.get(streams.pod(pod.uid), 0)
        node_version = self._versions.get(streams.node(result.node), 0)
        return nomination(pod.uid, result, self._ledger.position, pod_version, node_version)

    def may_preempt(self, pod: Pod) -> bool:
        """Return whether a pod of lower priority is placed anywhere."""
        return self._preempts(pod) and pod.priority > min(self._priorities, default=pod.priority)

    def _preempts(self, pod: Pod) -> bool:
        # Room for one pod of a gang is no room for the gang.
        return pod.preemption_policy == PREEMPTS and self._state.is_alone(pod)

    def _want(self, pod: Pod, searched: bool) -> None:
        """Remember the pod, and whether every node was searched for it; the oldest is dropped."""
        self._wanting.pop(pod.uid, None)
        if not self._preempts(pod) or (self._priorities and not self.may_preempt(pod)):
            return
        self._wanting[pod.uid] = (pod.priority, searched)
        if len(self._wanting) > WANTING:
            del self._wanting[next(iter(self._wanting))]

    def waiting(
        self, changed: Collection[str], is_own: Callable[[str], bool] = lambda _uid: True
    ) -> Proposal | None:
        """Search victims for a waiting pod of this scheduler's shard: on all nodes, or on the
        changed ones if the other nodes were searched. Pods that had a search go to the end of the
        line; for the others every node is searched later."""
        lowest = min(self._priorities, default=0)
        wanting = [(uid, *wanted) for uid, wanted in self._wanting.items() if is_own(uid)]
        candidates = [
            uid
            for uid, priority, searched in wanting
            if priority > lowest and (changed or not searched)
        ]
        for uid in candidates[SEARCHES:] if changed else ():
            self._wanting[uid] = (self._wanting[uid][0], False)
        for uid in candidates[:SEARCHES]:
            (_, searched), entry = self._wanting.pop(uid), self._ledger.pods.get(uid)
            if entry is None or entry.stage != "pending" or entry.terminating or uid in self.open:
                continue
            proposal = self._search(entry.pod, changed if searched else None)
            if proposal is not None:
                return proposal
        return None


class _Refused(msgspec.Struct):
    """`since_s` is in monotonic seconds, None until the next `passes`."""

    alike: Alike
    since_s: float | None = None


class EvictionRefusals:
    """Pods that may not be evicted for now: victims that the API server refused to evict, by uid,
    and pods like them, by their labels.

    No event shows that a disruption budget changed, or that a pod became ready and a budget allows
    one more eviction, so both are tried again after a while. If a budget refused, pods with the
    same labels would get the same answer, and each pod of a large workload would cost a nomination.
    The state is volatile: after a restart all are tried again.
    """

    def __init__(self) -> None:
        self._one: dict[str, _Refused] = {}
        self._many: dict[Alike, _Refused] = {}

    def refused(self, pod: Pod, message: str) -> None:
        """Note that the pod may not be evicted."""
        alike = _alike(pod)
        self._one[pod.uid] = _Refused(alike)
        if BUDGET in message:
            self._many[alike] = _Refused(alike)

    def started(self, pod: Pod) -> bool:
        """Note that one more pod runs, so that its budget may allow an eviction. Return whether an
        eviction may be tried again.
        """
        if not self._one and not self._many:
            return False
        alike, number = _alike(pod), len(self._one) + len(self._many)
        self._many.pop(alike, None)
        self._one = {uid: entry for uid, entry in self._one.items() if entry.alike != alike}
        return len(self._one) + len(self._many) < number

    def forget(self, uid: str) -> None:
        """Forget a pod that is no victim any more."""
        self._one.pop(uid, None)

    def passes(self, now_s: float) -> bool:
        """Note the time. Return whether an eviction may be tried again."""
        victims_expired = _expire(self._one, now_s, ITSELF_AGAIN_S)
        return _expire(self._many, now_s, ALIKE_AGAIN_S) or victims_expired

    def spared(self, pods: Mapping[str, LedgerPod], others: Container[str]) -> Container[str]:
        """Return the uids of pods to spare, `others` included."""
        return _Spared(self._one, self._many, pods, others)


class _Spared:
    def __init__(
        self,
        one: Container[str],
        many: Container[Alike],
        pods: Mapping[str, LedgerPod],
        others: Container[str],
    ) -> None:
        self._one, self._many, self._pods, self._others = one, many, pods, others

    def __contains__(self, uid: object) -> bool:
        if uid in self._one or uid in self._others:
            return True
        entry = self._pods.get(str(uid)) if self._many else None
        return entry is not None and _alike(entry.pod) in self._many


def _alike(pod: Pod) -> Alike:
    return pod.namespace, frozenset(
        label for label in pod.labels.items() if label[0] not in OF_ONE_POD
    )


def _expire(refused: dict[Any, _Refused], now_s: float, after_s: float) -> bool:
    expired = []
    for key, entry in refused.items():
        if entry.since_s is None:
            entry.since_s = now_s
        if now_s - entry.since_s >= after_s:
            expired.append(key)
    for key in expired:
        del refused[key]
    return bool(expired)
