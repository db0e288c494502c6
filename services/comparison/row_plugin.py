"""Rows with upstream's schedulers: no NUMA awareness, and the plugin with each of its three caches.

A vectorised equivalent of `plugins.upstream_compat` (`columns`), with kube-scheduler's queue. A
decision takes no time. All nodes are filtered, by node-level resources first.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from services.comparison.backoff import BackoffQueue
from services.comparison.columns import (
    ABSENT,
    NAMES,
    UNITS,
    Bools,
    Ints,
    aligned,
    node_request,
    requests,
    salt_of,
    score,
    vector,
    zone_column,
)
from services.comparison.rows import Reservation
from shared.domain.pod import Pod
from shared.domain.report import Report
from shared.events.catalog import Event
from shared.events.cluster_events import NodeObserved, PodEnded, PodObserved, PodRunning
from shared.kubelet.fingerprint import fingerprint

CacheName = Literal["none", "passthrough", "discardreserved", "overreserve"]
# cacheResyncPeriodSeconds of numaresources-operator.
RESYNC_S = 5.0


class PluginRow:
    """One profile of the scheduler. `most` scores by MostAllocated instead of LeastAllocated.
    `aligns` says that the kubelets have the policy single-numa-node, the only one for which the
    plugin filters and scores zones.
    """

    def __init__(
        self, cache: CacheName, names: list[str], zones: int, most: bool, aligns: bool = True
    ) -> None:
        self._cache, self._most, self._zones, self._names, self._aligns = (
            cache,
            most,
            zones,
            names,
            aligns,
        )
        self._at = {name: index for index, name in enumerate(names)}
        count = len(names)
        self._room: Ints = np.zeros((len(NAMES), count), dtype=np.int64)
        self._basis: Ints = np.full((len(NAMES), zones, count), ABSENT, dtype=np.int64)
        self._assumed: Ints = np.zeros((len(NAMES), count), dtype=np.int64)
        self._in_flight: Ints = np.zeros(count, dtype=np.int64)
        self._dirty = np.zeros(count, dtype=np.bool_)
        self._salts = np.array([salt_of(name) for name in names], dtype=np.uint64)
        self._live: dict[int, Report] = {}
        self._pods: dict[str, tuple[Pod, int]] = {}
        self._running: dict[int, dict[str, Pod]] = {}
        self._queue = BackoffQueue()
        self._resync_s = RESYNC_S

    # -- facts
    # ----------------------------------------------------------------------------------------------

    clairvoyant = False

    def happened(self, node: str) -> None:
        """Ignore it: this row gets no such calls."""

    def evolve(self, stream: str, event: Event, now_s: float) -> None:
        if isinstance(event, NodeObserved):
            self._room[:, self._at[event.name]] = vector(event.allocatable)
        elif isinstance(event, PodObserved):
            self._observed(event, now_s)
        elif isinstance(event, PodRunning):
            self._runs(event.uid)
        elif isinstance(event, PodEnded):
            self._ended(event.uid, now_s)

    def _observed(self, event: PodObserved, now_s: float) -> None:
        if not event.node:
            self._queue.add(event.pod, now_s)
            return
        self._occupy(event.pod, self._at[event.node])
        if event.phase == "Running":
            self._runs(event.pod.uid)

    def _occupy(self, pod: Pod, index: int) -> None:
        self._pods[pod.uid] = (pod, index)
        self._room[:, index] -= node_request(pod)

    def _runs(self, uid: str) -> None:
        pod, index = self._pods[uid]
        self._running.setdefault(index, {})[uid] = pod

    def _ended(self, uid: str, now_s: float) -> None:
        self._queue.remove(uid)
        pod, index = self._pods.pop(uid, (None, 0))
        if pod is None:
            return
        self._room[:, index] += node_request(pod)
        self._running.get(index, {}).pop(uid, None)
        self._queue.wake(now_s)

    def reported(self, report: Report, now_s: float) -> None:
        index = self._at[report.node]
        first = index not in self._live
        self._live[index] = report
        if self._cache != "overreserve" or first:
            self._basis[:, :, index] = self._column(report)
        self._queue.wake(now_s)

    def _column(self, report: Report) -> Ints:
        available = {
            zone.id: {name: resource.available for name, resource in zone.resources.items()}
            for zone in report.zones
        }
        return zone_column(available, self._zones)

    # -- deciding
    # ----------------------------------------------------------------------------------------------

    def decide(self, now_s: float) -> list[Reservation]:
        if self._cache == "overreserve" and now_s >= self._resync_s:
            self._resync()
            self._resync_s = now_s + RESYNC_S
        reserved = []
        while (pod := self._queue.due(now_s)) is not None:
            index = self._place(pod)
            if index is None:
                self._queue.refused(pod.uid, now_s)
                continue
            self._queue.remove(pod.uid)
            self._reserve(pod, index)
            reserved.append((pod.uid, self._names[index]))
        return reserved

    def _place(self, pod: Pod) -> int | None:
        inits, apps = requests(pod)
        roomy: Bools = np.all(self._room >= node_request(pod)[:, None], axis=0)
        if self._cache == "none":
            return self._best(
                roomy, score(self._room[:, None, :], [node_request(pod)], self._most), pod
            )
        view = self._view()
        passed = aligned(view, inits, apps) if self._aligns else roomy
        closed = self._in_flight > 0
        self._dirty |= roomy & ~passed
        scores = (
            score(view, [*inits, *apps], self._most)
            if self._aligns
            else np.zeros(len(roomy), dtype=np.int64)
        )
        return self._best(roomy & passed & ~closed, scores, pod)

    def _view(self) -> Ints:
        if self._cache != "overreserve":
            return self._basis
        charged = np.maximum(self._basis - self._assumed[:, None, :], 0)
        return np.where(self._basis == ABSENT, ABSENT, charged)

    def _best(self, passed: Bools, scores: Ints, pod: Pod) -> int | None:
        """Return the node with the highest score. A hash of pod and node breaks ties
        (kube-scheduler picks at random).
        """
        chosen = np.flatnonzero(passed)
        if not len(chosen):
            return None
        best = chosen[scores[chosen] == scores[chosen].max()]
        salt = np.uint64(salt_of(pod.uid))
        return int(best[np.argmin(self._salts[best] ^ salt)])

    def _reserve(self, pod: Pod, index: int) -> None:
        self._occupy(pod, index)
        self._assumed[:, index] += node_request(pod)
        if self._cache == "discardreserved":
            self._in_flight[index] += 1

    def _resync(self) -> None:
        """Take the newest report of each dirty node whose fingerprint matches the pods that were
        observed Running, and drop the reservations there.

        As in the plugin, a node without such pods is skipped, and no pod is woken.
        """
        for index in np.flatnonzero(self._dirty).tolist():
            report, running = self._live.get(index), self._running.get(index)
            if report is None or not running:
                continue
            if (
                fingerprint((pod.namespace, pod.name) for pod in running.values())
                == report.fingerprint
            ):
                self._basis[:, :, index] = self._column(report)
                self._assumed[:, index] = 0
                self._dirty[index] = False

    def intends(self, pod: Pod, node: str, now_s: float) -> dict[str, str]:
        return {}

    def bound(self, pod: Pod, node: str, now_s: float) -> None:
        if self._cache == "discardreserved":
            self._in_flight[self._at[node]] -= 1

    # -- questions
    # ----------------------------------------------------------------------------------------------

    def next_s(self, now_s: float) -> float | None:
        due = self._queue.next_s()
        if self._cache == "overreserve" and self._dirty.any():
            due = min(due, self._resync_s) if due is not None else self._resync_s
        return due

    def waiting(self) -> int:
        return len(self._queue)

    def visible_cpu(self, node: str) -> dict[int, int]:
        if self._cache == "none":
            return {}
        index = self._at[node]
        if self._in_flight[index] > 0:
            return dict.fromkeys(range(self._zones), 0)
        basis = self._basis[0, :, index]
        taken = self._assumed[0, index] if self._cache == "overreserve" else 0
        return {
            zone: max(0, int(cpu - taken)) * UNITS[0]
            for zone, cpu in enumerate(basis.tolist())
            if cpu != ABSENT
        }
