"""The mirror: NodeResourceTopology objects for other consumers, written when a node's report is news.

A courtesy behind the log: each node at most once in an interval, newest state only. Writes these objects and nothing else.
"""

from __future__ import annotations

from services.topology_store.handlers import Reports
from shared.kube import nrt
from shared.kube.port import Answer, Kube
from shared.runtime.clock import Clock
from shared.telemetry import names
from shared.telemetry.instruments import count


class Mirror:
    """Writes what `Reports` knows."""

    def __init__(self, reports: Reports, kube: Kube, interval_s: float, clock: Clock) -> None:
        self._reports = reports
        self._kube = kube
        self._interval_s = interval_s
        self._clock = clock
        self._written: dict[str, int] = {}

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            await self._clock.sleep(self._interval_s)
            for node, known in list(self._reports.known.items()):
                if known.report is not None and self._written.get(node) != known.version:
                    answer = await self._kube.apply_topology(node, nrt.to_nrt(known.report))
                    done = isinstance(answer, Answer) and answer.ok
                    count(names.MIRRORED, result="written" if done else "failed")
                    if done:
                        self._written[node] = known.version
