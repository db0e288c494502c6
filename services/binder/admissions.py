"""Where kubelets put the pods that this binder bound: told once a pod, when a report shows it
whole. Pure; from facts.

Bounded: of very many pods on their way the oldest is forgotten, since an announcement is a
courtesy.
"""

from __future__ import annotations

import msgspec

from shared.domain.demand import ContainerDemand, zonal_demand
from shared.domain.pod import Pod
from shared.domain.report import Placement
from shared.events.binding_events import PodBound
from shared.events.catalog import Event
from shared.events.cluster_events import PodEnded, PodObserved
from shared.events.report_events import NodeReportChanged, NodeReported
from shared.events.scheduling_events import PodReserved
from shared.ledger.proof import covers

KEPT = 5_000
Zones = dict[str, tuple[int, ...]]


class Admitted(msgspec.Struct, frozen=True):
    """A pod that a report shows whole: container -> zones, and what was predicted (empty: nothing)."""

    uid: str
    node: str
    zones: Zones
    predicted: Zones

    @property
    def message(self) -> str:
        """`Admitted on zone 1 of node-3, as predicted`."""
        said = f"Admitted on {_words(self.zones)} of {self.node}"
        if not self.predicted:
            return said
        wanted = {name: self.predicted.get(name, self.predicted.get("", ())) for name in self.zones}
        return (
            f"{said}, as predicted"
            if wanted == self.zones
            else f"{said}; predicted was {_words(self.predicted)}"
        )


class _Pending(msgspec.Struct):
    pod: Pod
    node: str = ""
    predicted: Zones = {}
    bound: bool = False


class Admissions:
    """Hears facts in order of the log."""

    def __init__(self) -> None:
        self._pending: dict[str, _Pending] = {}
        self._bound: dict[str, dict[str, str]] = {}
        self._tracked: dict[str, tuple[str, ...]] = {}

    def heard(self, event: Event) -> list[Admitted]:
        """The pods that this fact shows to be admitted."""
        if isinstance(event, PodObserved) and not event.node:
            self._pending[event.pod.uid] = _Pending(event.pod)
            if len(self._pending) > KEPT:
                self._forget(next(iter(self._pending)))
        elif isinstance(event, PodReserved) and event.uid in self._pending:
            self._pending[event.uid].node, self._pending[event.uid].predicted = (
                event.node,
                event.predicted,
            )
        elif isinstance(event, PodBound) and event.uid in self._pending:
            pending = self._pending[event.uid]
            pending.bound, pending.node = True, event.node
            self._bound.setdefault(event.node, {})[pending.pod.key] = event.uid
        elif isinstance(event, PodEnded):
            self._forget(event.uid)
        elif isinstance(event, NodeReported):
            self._tracked[event.report.node] = event.report.tracked
            return self._shown(event.report.node, event.report.placements or ())
        elif isinstance(event, NodeReportChanged):
            return self._shown(event.node, event.listed)
        return []

    def _shown(self, node: str, listed: tuple[Placement, ...]) -> list[Admitted]:
        waiting = self._bound.get(node)
        if not waiting:
            return []
        found = []
        by_key: dict[str, list[Placement]] = {}
        for placement in listed:
            key = f"{placement.namespace}/{placement.pod}"
            if key in waiting:
                by_key.setdefault(key, []).append(placement)
        for key, placements in by_key.items():
            uid = waiting[key]
            demand = zonal_demand(self._pending[uid].pod, self._tracked.get(node, ()))
            if _whole(demand, placements):
                found.append(Admitted(uid, node, _zones(placements), self._pending[uid].predicted))
                self._forget(uid)
        return found

    def _forget(self, uid: str) -> None:
        pending = self._pending.pop(uid, None)
        if pending is not None and pending.bound:
            here = self._bound.get(pending.node, {})
            here.pop(pending.pod.key, None)
            if not here:
                self._bound.pop(pending.node, None)


def _whole(demand: tuple[ContainerDemand, ...], placements: list[Placement]) -> bool:
    return bool(demand) and covers(demand, placements)


def _zones(placements: list[Placement]) -> Zones:
    return {
        one.container: tuple(sorted({zone for item in one.held for zone in item.zones}))
        for one in placements
        if one.held
    }


def _words(zones: Zones) -> str:
    if len(set(zones.values())) == 1:
        return _ids(next(iter(zones.values())))
    return ", ".join(f"{_ids(ids)} ({name or 'pod'})" for name, ids in sorted(zones.items()))


def _ids(zones: tuple[int, ...]) -> str:
    return ("zone " if len(zones) == 1 else "zones ") + ", ".join(map(str, zones))
