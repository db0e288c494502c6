"""The pending pods of this cell that go by hash: when the cell lets one go, and what the next cell
has to see.

1. A pod is let go if it had no node for the whole wait (`Cells.wait_in`). `PodEnded` with `hops`
   competes with a reservation by the version of the pod's stream. All pods of a gang end in one
   commit, and only if none of them has a node or was bound.
2. From then on this log never takes the pod back at fewer hops, whichever observer leads
   (`SchedulerState.let_go`).
3. The hops are written into an annotation, through the pod's status. Only then is the pod another
   cell's. A crash before that leaves the pod without a cell until the next observer writes them; a
   patch that is executed late changes nothing that this log still has.

Pure. Must not know watches or the log."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

from services.scheduler.state.state import SchedulerState
from shared.domain.cells import HOPS, Cells, Route
from shared.domain.fields import part
from shared.eventlog.port import Draft
from shared.events import streams
from shared.events.cluster_events import PodEnded
from shared.ledger.state import LedgerPod

Object = dict[str, Any]
# Looks for each wait; fewer, because a look reads every pending pod.
LOOKS = 20
# Pods, or gangs, that are let go at once.
MOST_AT_ONCE = 50


class SeenPod(NamedTuple):
    """A pending pod as it was seen last."""

    namespace: str
    name: str
    version: str
    route: Route


class CellPods:
    """The pending pods by hash of this cell, and since when this leader sees each without a
    node."""

    def __init__(self, cells: Cells, schedulers: Collection[str]) -> None:
        self._cells, self._schedulers = cells, schedulers
        self.seen: dict[str, SeenPod] = {}
        self._refused_since_s: dict[str, float] = {}
        self._next_look_s = 0.0

    def begin(self) -> None:
        """Forget what an earlier lease has seen."""
        self.seen.clear()
        self._refused_since_s.clear()

    def note(self, obj: Object, deleted: bool = False) -> None:
        """Note a listed or changed pod."""
        metadata, spec = part(obj, "metadata"), part(obj, "spec")
        uid = str(metadata.get("uid", ""))
        is_over = deleted or spec.get("nodeName") or metadata.get("deletionTimestamp")
        if is_over or spec.get("schedulerName") not in self._schedulers:
            self.seen.pop(uid, None)
            return
        route = self._cells.route(obj)
        if route.cell != self._cells.own or len(route.ring) < 2:
            self.seen.pop(uid, None)
            return
        version, name = str(metadata.get("resourceVersion", "")), str(metadata.get("name", ""))
        self.seen[uid] = SeenPod(str(metadata.get("namespace", "")), name, version, route)

    def keep(self, present: Collection[str]) -> None:
        """Forget the pods that a complete list lacks."""
        self.seen = {uid: pod for uid, pod in self.seen.items() if uid in present}

    def to_let_go(self, state: SchedulerState, now_s: float) -> list[tuple[Draft, ...]]:
        """Return the events of each pod or gang that this cell lets go; none as long as one that
        was let go has not gone."""
        wait_s = self._cells.wait_s
        if not wait_s or now_s < self._next_look_s or self.to_pass_on(state):
            return []
        self._next_look_s = now_s + wait_s / LOOKS
        chosen = dict[str, tuple[Draft, ...]]()
        for uid in self._overdue(state, now_s):
            first = min(unit := _unit(state, uid), default="")
            if first not in chosen and self._may_go(state, unit):
                chosen[first] = self._ends(state, unit)
            if len(chosen) == MOST_AT_ONCE:
                self._next_look_s = now_s
                break
        return list(chosen.values())

    def to_pass_on(self, state: SchedulerState) -> dict[str, Object]:
        """Return the patch of each pod that was let go and that the API does not show so yet."""
        return {
            uid: {
                "metadata": {
                    "uid": uid,
                    "resourceVersion": pod.version,
                    "annotations": {HOPS: str(hops)},
                }
            }
            for uid, hops in state.let_go.items()
            if (pod := self.seen.get(uid)) is not None and pod.route.hops < hops
        }

    def _overdue(self, state: SchedulerState, now_s: float) -> Iterator[str]:
        """Yield the pods that have waited for long enough, and note those that begin to wait."""
        waiting, pods = dict[str, float](), state.ledger.pods
        for uid in self.seen:
            entry = pods.get(uid)
            if entry is not None and _is_refused(entry):
                waiting[uid] = self._refused_since_s.get(uid, now_s)
        self._refused_since_s = waiting
        for uid, since_s in waiting.items():
            if now_s - since_s >= self._cells.wait_in(self.seen[uid].route):
                yield uid

    def _may_go(self, state: SchedulerState, unit: Collection[str]) -> bool:
        pods = state.ledger.pods
        if not all(uid in self.seen and _is_pending(pods[uid]) for uid in unit):
            return False
        return len({self.seen[uid].route.ring for uid in unit}) == 1

    def _ends(self, state: SchedulerState, unit: Collection[str]) -> tuple[Draft, ...]:
        hops = 1 + max(self.seen[uid].route.hops for uid in unit)
        return tuple(
            Draft(
                streams.pod(uid),
                PodEnded(uid, "moved", message=state.ledger.pods[uid].verdict, hops=hops),
                state.versions.get(streams.pod(uid), 0),
            )
            for uid in sorted(unit)
        )


def _unit(state: SchedulerState, uid: str) -> Collection[str]:
    """Return the pods that go together, none if the gang of this one must stay."""
    members = state.gangs.of_pod(uid)
    if members is None:
        return (uid,)
    return () if any(members.started.values()) else members.started


def _is_refused(entry: LedgerPod) -> bool:
    return bool(entry.verdict) and _is_pending(entry)


def _is_pending(entry: LedgerPod) -> bool:
    """Return whether nothing happens to the pod: no node, no victims, no gates, and no problem that
    every cell would have with it."""
    is_quiet = not (entry.nominated or entry.terminating or entry.problem)
    return entry.stage == "pending" and is_quiet and not entry.pod.constraints.gates
