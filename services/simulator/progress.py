"""The progress of a workload: the stage of every pod by the cluster's changes, counts, latencies,
and whether it is over.

Pure: it takes changes and times, and returns a summary. This module does not know clocks, HTTP or
the scheduler.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from services.simulator.feasibility import Infeasible

Json = dict[str, Any]
Stage = Literal["waiting", "bound", "running", "succeeded", "rejected", "lost", "withdrawn"]
LATENCIES_KEPT = 100_000
# A number of pods that stands for a workload without end.
ENDLESS = -1
# Ended pods that are remembered by uid.
ENDED_KEPT = 512
_OVER = ("succeeded", "rejected", "lost", "withdrawn")


class Outcome(msgspec.Struct, frozen=True):
    """Percentiles of a latency in real milliseconds, over `count` pods. `per_s` is the rate of the
    middle 80 % of them.
    """

    count: int = 0
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    max_ms: float = 0.0
    per_s: float = 0.0


class Summary(msgspec.Struct, frozen=True):
    """A workload at one moment. `total` is 0 for a workload without end. `infeasible` pods fit no
    node and wait for ever. `left` pods are feasible and have not ended. `lost` pods vanished before
    their end. `withdrawn` pods were infeasible and deleted again. `resumed` pods were created by an
    earlier process."""

    total: int
    created: int
    waiting: int
    bound: int
    running: int
    succeeded: int
    rejected: int
    lost: int
    infeasible: tuple[Infeasible, ...]
    left: tuple[str, ...]
    done: bool
    quiet_s: float
    virtual_s: float
    real_s: float
    factor: float
    to_bound: Outcome
    to_running: Outcome
    withdrawn: int = 0
    resumed: int = 0


class PlayedBefore(msgspec.Struct, frozen=True):
    """What an earlier process recorded of the same workload: created pods, results of ended ones,
    recently ended uids, and names of pods that it requested and never saw.

    A later process may see a recently ended pod again: it was not deleted, or the API was killed
    before it had saved the deletion.
    """

    created: int = 0
    succeeded: int = 0
    rejected: int = 0
    lost: int = 0
    withdrawn: int = 0
    lately: dict[str, Stage] = {}
    missing: tuple[str, ...] = ()


class Progress:
    """Counts of one workload of `total` pods. `earlier` has what an earlier process did of it,
    which may be more than `total`.
    """

    def __init__(self, total: int, earlier: PlayedBefore | None = None) -> None:
        self._before = earlier or PlayedBefore()
        self.total = total if total == ENDLESS else max(total, self._before.created)
        self._stages: dict[str, Stage] = {}
        self._recently_ended: dict[str, Stage] = dict(self._before.lately)
        self._asked = dict.fromkeys(self._before.missing)
        self._names: dict[str, str] = {}
        self._infeasible: dict[str, Infeasible] = {}
        self._stuck = 0
        self._counts: dict[str, int] = dict.fromkeys(("waiting", "bound", "running"), 0)
        self._counts |= {name: getattr(self._before, name) for name in _OVER}
        self._created_at: dict[str, float] = {}
        self._to_bound = _Latencies()
        self._to_running = _Latencies()
        self._last_s: float | None = None

    @property
    def asked_before(self) -> int:
        """The number of pods that an earlier process requested, including pods that it
        never saw.
        """
        return self._before.created + len(self._before.missing)

    @property
    def missing_before(self) -> tuple[str, ...]:
        """Names of pods that an earlier process requested and never saw."""
        return self._before.missing

    @property
    def ended(self) -> PlayedBefore:
        """The record that a later process needs."""
        lately = self._recently_ended | {
            uid: stage for uid, stage in self._stages.items() if stage in _OVER
        }
        over = {name: self._counts[name] for name in _OVER}
        return PlayedBefore(self._all_created(), **over, lately=lately, missing=tuple(self._asked))

    @property
    def waiting(self) -> int:
        """Feasible pods that no node has yet."""
        return self._counts["waiting"] - self._stuck

    @property
    def done(self) -> bool:
        """Whether every pod was created and every feasible pod has ended."""
        ended = sum(self._counts[name] for name in _OVER)
        return self.total != ENDLESS and ended + self._stuck >= self.total

    def expect_infeasible(self, infeasible: Iterable[Infeasible]) -> None:
        """Note tasks that fit no node and may wait for ever."""
        for task in infeasible:
            self._infeasible[task.task] = task
            self._stuck += sum(
                self._names[uid] == task.task
                for uid, stage in self._stages.items()
                if stage == "waiting"
            )

    def begins(self, now_s: float) -> None:
        """Note that the workload begins now: a workload that has not begun is never quiet."""
        self._last_s = now_s

    def asked(self, name: str) -> None:
        """Record that a pod is about to be created. Until it is seen, its creation is uncertain."""
        self._asked[name] = None

    def created(self, uid: str, name: str, now_s: float) -> None:
        """Note a created pod, whose request was sent at `now_s`."""
        self._created_at[uid] = now_s
        self._names[uid] = name
        if uid not in self._stages:
            self._enter(uid, "waiting", now_s)

    def seen(self, kind: str, obj: Json, now_s: float) -> Stage | None:
        """Note a changed pod of the workload. Return the stage that it entered, or None."""
        uid = obj["metadata"]["uid"]
        stage = _stage(kind, obj)
        old_stage = self._stages.get(uid)
        if old_stage == "waiting" and stage == "lost" and self._names[uid] in self._infeasible:
            stage = "withdrawn"
        entered = None
        if stage != old_stage and old_stage not in _OVER:
            self._names.setdefault(uid, obj["metadata"]["name"])
            self._enter(uid, stage, now_s)
            entered = stage
        if kind == "DELETED":
            self._forget(uid)
        return entered

    def withdrawable(self, kept: int) -> list[str]:
        """Names of infeasible pods that still wait, oldest first, without the `kept` newest."""
        stuck = [self._names[uid] for uid, stage in self._stages.items() if stage == "waiting"]
        return [name for name in stuck if name in self._infeasible][: -kept or None]

    def summary(self, now_s: float, virtual_s: float, real_s: float) -> Summary:
        """Return the workload's state. `now_s` is by the clock of `created` and `seen`."""
        open_stages = ("waiting", "bound", "running")
        waiting = sorted(
            self._names[uid] for uid, stage in self._stages.items() if stage in open_stages
        )
        return Summary(
            total=max(self.total, 0),
            created=self._all_created(),
            resumed=self._before.created,
            **{**self._counts, "waiting": self.waiting},
            infeasible=tuple(self._infeasible[name] for name in sorted(self._infeasible)),
            left=tuple(name for name in waiting if name not in self._infeasible),
            done=self.done,
            quiet_s=round(now_s - self._last_s, 3) if self._last_s is not None else 0.0,
            virtual_s=round(virtual_s, 1),
            real_s=round(real_s, 3),
            factor=round(virtual_s / real_s, 2) if real_s > 0 else 0.0,
            to_bound=self._to_bound.outcome(),
            to_running=self._to_running.outcome(),
        )

    def _all_created(self) -> int:
        """Return the number of pods that exist or have ended. Pods of an earlier process may not
        have been seen yet.
        """
        return max(sum(self._counts.values()), self._before.created)

    def _forget(self, uid: str) -> None:
        """Keep only counts of an ended pod, because a workload without end must not grow in
        memory."""
        self._infeasible.pop(self._names.pop(uid, ""), None)
        if (stage := self._stages.pop(uid, None)) in _OVER:
            self._recently_ended[uid] = stage
        if len(self._recently_ended) > ENDED_KEPT:
            del self._recently_ended[next(iter(self._recently_ended))]
        self._created_at.pop(uid, None)

    def _enter(self, uid: str, stage: Stage, now_s: float) -> None:
        self._asked.pop(self._names[uid], None)
        old_stage = self._stages.get(uid) or self._recently_ended.pop(uid, None)
        if old_stage is not None:
            self._counts[old_stage] -= 1
        self._stages[uid] = stage
        self._counts[stage] += 1
        if self._names[uid] in self._infeasible:
            self._stuck += (stage == "waiting") - (old_stage == "waiting")
        self._last_s = now_s
        began = self._created_at.get(uid)
        if began is None:
            return
        if old_stage == "waiting" and stage in ("bound", "running"):
            self._to_bound.add(began, now_s)
        if stage == "running":
            self._to_running.add(began, now_s)


def _stage(kind: str, obj: Json) -> Stage:
    phase = obj["status"].get("phase")
    if phase == "Succeeded":
        return "succeeded"
    if phase == "Failed":
        return "rejected"
    if kind == "DELETED":
        return "lost"
    if phase == "Running":
        return "running"
    return "bound" if obj["spec"].get("nodeName") else "waiting"


class _Latencies:
    """When pods reached a stage, and how long that took."""

    def __init__(self) -> None:
        self._took_s: list[float] = []
        self._at_s: list[float] = []

    def add(self, began_s: float, now_s: float) -> None:
        if len(self._took_s) < LATENCIES_KEPT:
            self._took_s.append(now_s - began_s)
            self._at_s.append(now_s)

    def outcome(self) -> Outcome:
        if not self._took_s:
            return Outcome()
        ordered = sorted(self._took_s)
        last = len(ordered) - 1
        p50, p99, slowest = (
            round(ordered[round(last * share)] * 1000, 1) for share in (0.5, 0.99, 1.0)
        )
        return Outcome(len(ordered), p50, p99, slowest, self._rate())

    def _rate(self) -> float:
        """Return the rate without the first and the last tenth: the first pods come at once, and
        the last ones wait for room.
        """
        last = len(self._at_s) - 1
        low, high = round(last * 0.1), round(last * 0.9)
        passed_s = self._at_s[high] - self._at_s[low]
        return round((high - low) / passed_s, 1) if passed_s > 0 else 0.0
