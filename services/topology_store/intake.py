"""Reports from NodeResourceTopology objects of other exporters (RTE, NFD, or by hand).

An object that exists shows that its node is alive, because exporters write only changes. A node
whose object was deleted becomes silent. The order of reports is the object's resourceVersion within
its uid. Objects of the mirror are never read.
"""

from __future__ import annotations

from typing import Any

import msgspec

from services.topology_store import validation
from services.topology_store.handlers import ReceivedReport, Reports
from services.topology_store.objects import name_of
from services.topology_store.validation import RefusedReport
from shared.domain.report import OBJECT, Report
from shared.kube.koordlet import MemoryPolicy
from shared.kube.nrt import NrtError, from_nrt
from shared.kube.nrt_mirrored import is_mirrored
from shared.kube.port import WatchEvent
from shared.runtime.clock import Clock
from shared.telemetry import logs, names
from shared.telemetry.instruments import count

TICK_S = 0.5
BATCH = 500

Object = dict[str, Any]


class Intake:
    """A listener of `Objects`. Of several pending versions of one object only the newest is
    judged."""

    def __init__(
        self, reports: Reports, clock: Clock, koordlet_memory: MemoryPolicy = "auto"
    ) -> None:
        self._reports = reports
        self._koordlet_memory = koordlet_memory
        self._clock = clock
        self._existing: set[str] = set()
        self._pending: dict[str, ReceivedReport] = {}
        self._out = logs.get("topology intake")

    def listing(self) -> None:
        """Forget all objects: they come again."""
        self._existing.clear()
        self._pending.clear()

    def complete(self, version: str) -> None:
        """Nothing to do: each object was read as it came."""

    def seen(self, event: WatchEvent) -> None:
        """Read an object that exists or changed, or forget a deleted one."""
        self._existing.discard(name_of(event.object))
        if event.type != "DELETED":
            self._read(event.object)

    async def run(self) -> None:
        while True:
            now_s = self._clock.monotonic_s()
            self._reports.received_s.update(
                {name: now_s for name in self._existing if self._is_source_of(name)}
            )
            while self._pending:
                batch = [self._pending.pop(name) for name in list(self._pending)[:BATCH]]
                await self._reports.judge(batch)
            await self._clock.sleep(TICK_S)

    def _is_source_of(self, node: str) -> bool:
        state = self._reports.nodes.get(node)
        return state is not None and state.report is not None and state.report.source == OBJECT

    def _read(self, topology: Object) -> None:
        if is_mirrored(topology):
            return
        node, (boot, version) = name_of(topology), _identity(topology)
        if version.isdecimal() and self._reports.is_last(node, boot, int(version)):
            # After a start nearly all objects are as they were: reading one takes 0.2 ms.
            self._existing.add(node)
            self._pending.pop(node, None)
            return
        report = read_object(topology, self._koordlet_memory)
        if isinstance(report, RefusedReport):
            count(names.REPORTS, verdict="refused")
            self._out.warning(names.REPORT_REFUSED, node=report.node, problem=report.problem)
            return
        self._existing.add(report.node)
        self._pending[report.node] = ReceivedReport(
            report, len(msgspec.json.encode(report)), "", self._reports.now_ms()
        )


def read_object(topology: Object, koordlet_memory: MemoryPolicy = "auto") -> Report | RefusedReport:
    """Return the report of an object, or its problem."""
    boot, version = _identity(topology)
    if not version.isdecimal():
        return RefusedReport(
            name_of(topology),
            f"metadata.resourceVersion: {version[:40]!r} is no number, so objects have no order",
        )
    try:
        report = from_nrt(topology, boot, int(version), koordlet_memory)
    except NrtError as error:
        return RefusedReport(name_of(topology), str(error))
    problem = validation.problem_of(report.node, report)
    return report if problem is None else RefusedReport(report.node, problem)


def _identity(topology: Object) -> tuple[str, str]:
    """Return what stands for the boot in reports of this object, and the object's version."""
    metadata = topology.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    return f"nrt:{metadata.get('uid', '')}", str(metadata.get("resourceVersion", ""))
