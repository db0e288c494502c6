"""The counts of a running cell, and the result made of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from services.comparison.cells import Cell, Result, Waits
from services.comparison.rows import Row
from services.comparison.truth import AFTER_END, OVERTAKEN, UNEXPLAINED, TrueNode
from services.comparison.zones import ZoneCounts
from shared.domain.pod import Pod
from shared.kubelet.admission import Admission

MANY_NODES = 500
KEPT_STORIES = 5


class Measures:
    """Counts and sums of one cell. Waits run from a task's arrival to its admission, rejections
    included.
    """

    def __init__(
        self,
        cell: Cell,
        nodes: Mapping[str, TrueNode],
        row: Row,
        asks_every_node: bool = False,
    ) -> None:
        self.zones = ZoneCounts(nodes, asks_every_node)
        self.sample_s = 2.0 if len(nodes) < MANY_NODES else 5.0
        self._cell, self._nodes, self._row = cell, nodes, row
        self._arrived: dict[str, float] = {}
        self._waits: list[float] = []
        self._gpus: dict[str, int] = {}
        self._waits_by_gpus: dict[int, list[float]] = {}
        self._rejected = self._after_end = self._overtaken = 0
        self._stories: list[str] = []
        self._withheld = self._hidden = 0.0

    def arrived(self, uid: str, arrived_s: float, gpus: int = 0) -> None:
        """Record a pod, created for a task that arrived at `arrived_s`."""
        self._arrived[uid] = arrived_s
        if gpus:
            self._gpus[uid] = gpus

    def admitted(self, uid: str, now_s: float) -> None:
        """Record that a kubelet admitted the pod."""
        if uid in self._arrived:
            wait_s = now_s - self._arrived.pop(uid)
            self._waits.append(wait_s)
            if uid in self._gpus:
                self._waits_by_gpus.setdefault(self._gpus[uid], []).append(wait_s)

    def gave_up(self, uid: str) -> None:
        """Record that the pod was deleted before it was placed."""
        self._arrived.pop(uid, None)

    def replaced(self, uid: str) -> None:
        """Forget a rejected pod, which another pod follows. Until then its task counts as
        waiting.
        """
        self._arrived.pop(uid, None)

    def rejected(
        self, node: TrueNode, pod: Pod, decided: tuple[float, int], now_s: float, verdict: Admission
    ) -> None:
        """Record a rejection, and whether its cause could be foreseen at the decision."""
        self._rejected += 1
        cause = node.why_refused(pod, decided)
        self._after_end += cause == AFTER_END
        self._overtaken += cause == OVERTAKEN
        if cause == UNEXPLAINED and len(self._stories) < KEPT_STORIES:
            self._stories.append(
                f"{pod.uid} on {node.name} at {now_s:.3f} s, decided {decided[0]:.3f} s: "
                f"{verdict.reason}"
            )

    def sample(self) -> None:
        """Add the hidden capacity of this moment: free CPUs of the zones, less those that the row
        considers free.
        """
        hidden = 0
        for name, node in self._nodes.items():
            visible = self._row.visible_cpu(name)
            if visible:
                free = node.free()
                hidden += sum(
                    max(0, free[zone].get("cpu", 0) - seen)
                    for zone, seen in visible.items()
                    if zone in free
                )
        hours = hidden / 1000 * self.sample_s / 3600
        self._hidden += hours
        if self._row.waiting():
            self._withheld += hours

    def so_far(self) -> tuple[int, int, int]:
        """Return how many pods were admitted, how many rejected, and how many tasks wait now."""
        return len(self._waits), self._rejected, len(self._arrived)

    def result(self, infeasible: int, real_s: float) -> Result:
        """Return the measurements of the cell."""
        waits_so_far = [
            max(0.0, self._cell.horizon_s - arrived_s) for arrived_s in self._arrived.values()
        ]
        waits = sorted([*self._waits, *waits_so_far])
        return Result(
            self._cell,
            tasks=len(waits),
            admitted=len(self._waits),
            rejected=self._rejected,
            rejected_after_end=self._after_end,
            rejected_overtaken=self._overtaken,
            wait_mean_s=_mean(waits),
            wait_p99_s=_p99(waits),
            withheld_cpu_h=round(self._withheld, 2),
            hidden_cpu_h=round(self._hidden, 2),
            infeasible=infeasible,
            unexplained=tuple(self._stories),
            real_s=round(real_s, 1),
            waits_by_gpus=self._by_gpus(),
            zones_per_pod=round(self.zones.zones / max(1, self.zones.pods), 4),
            aligned_share=round(self.zones.aligned / max(1, self.zones.pods), 4),
            zoned=self.zones.pods,
            alignable=self.zones.alignable,
            missed=self.zones.missed,
        )

    def _by_gpus(self) -> dict[int, Waits]:
        """Return the waits by the number of GPUs that a task requests."""
        still_waiting: dict[int, list[float]] = {}
        for uid, arrived_s in self._arrived.items():
            if uid in self._gpus:
                waited_s = max(0.0, self._cell.horizon_s - arrived_s)
                still_waiting.setdefault(self._gpus[uid], []).append(waited_s)
        by_gpus = {}
        for gpus in sorted({*self._waits_by_gpus, *still_waiting}):
            admitted = self._waits_by_gpus.get(gpus, [])
            waits = sorted([*admitted, *still_waiting.get(gpus, [])])
            by_gpus[gpus] = Waits(len(waits), len(admitted), _mean(waits), _p99(waits))
        return by_gpus


def _mean(waits: Sequence[float]) -> float:
    return round(sum(waits) / max(1, len(waits)), 2)


def _p99(waits: Sequence[float]) -> float:
    """Return the 99th percentile of sorted waits."""
    return round(waits[min(len(waits) - 1, int(len(waits) * 0.99))] if waits else 0.0, 2)


def as_line(result: Result) -> bytes:
    """Return the result as one line of JSON."""
    return msgspec.json.encode(result) + b"\n"
