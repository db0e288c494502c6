"""Reports out of NodeResourceTopology objects that another exporter (RTE, NFD, a person) writes.

An object that stands is a node that is heard, because exporters write only what changed; one that
is gone falls silent in time. Freshness is the object's resourceVersion within its uid. Never takes
in what the mirror wrote.
"""

from __future__ import annotations

from typing import Any

import msgspec

from services.topology_store import validation
from services.topology_store.handlers import Heard, Reports
from services.topology_store.objects import name_of
from services.topology_store.validation import RefusedReport
from shared.domain.report import Report
from shared.kube.nrt import SOURCE, NrtError, from_nrt
from shared.kube.nrt_mirrored import is_mirrored
from shared.kube.port import WatchEvent
from shared.runtime.clock import Clock
from shared.telemetry import logs, names
from shared.telemetry.instruments import count

TICK_S = 0.5
BATCH = 500

Object = dict[str, Any]


class Intake:
    """A listener of `Objects`. Of several versions of one object that wait, only the newest is
    judged.
    """

    def __init__(self, reports: Reports, clock: Clock) -> None:
        self._reports = reports
        self._clock = clock
        self._standing: set[str] = set()
        self._waiting: dict[str, Heard] = {}
        self._out = logs.get("topology intake")

    def listing(self) -> None:
        """All objects are shown anew."""
        self._standing.clear()
        self._waiting.clear()

    def complete(self, version: str) -> None:
        """All were shown; each was taken as it came."""

    def seen(self, event: WatchEvent) -> None:
        """One object stands, changed or went."""
        self._standing.discard(name_of(event.object))
        if event.type != "DELETED":
            self._take(event.object)

    async def run(self) -> None:
        """Hand over what waits, until cancelled."""
        while True:
            now_s = self._clock.monotonic_s()
            self._reports.heard_s.update(
                {name: now_s for name in self._standing if self._speaks_for(name)}
            )
            while self._waiting:
                batch = [self._waiting.pop(name) for name in list(self._waiting)[:BATCH]]
                await self._reports.judge(batch)
            await self._clock.sleep(TICK_S)

    def _speaks_for(self, node: str) -> bool:
        known = self._reports.known.get(node)
        return known is not None and known.report is not None and known.report.source == SOURCE

    def _take(self, found: Object) -> None:
        if is_mirrored(found):
            return
        read = read_object(found)
        if isinstance(read, RefusedReport):
            count(names.REPORTS, verdict="refused")
            self._out.warning(names.REPORT_REFUSED, node=read.node, problem=read.problem)
            return
        self._standing.add(read.node)
        self._waiting[read.node] = Heard(
            read, len(msgspec.json.encode(read)), "", self._reports.now_ms()
        )


def read_object(found: Object) -> Report | RefusedReport:
    """The report of an object, or what is wrong with it."""
    metadata = found.get("metadata") if isinstance(found.get("metadata"), dict) else {}
    assert isinstance(metadata, dict)
    version = str(metadata.get("resourceVersion", ""))
    if not version.isdecimal():
        return RefusedReport(
            name_of(found),
            f"metadata.resourceVersion: {version[:40]!r} is no number; which object is newer?",
        )
    try:
        report = from_nrt(found, f"nrt:{metadata.get('uid', '')}", int(version))
    except NrtError as error:
        return RefusedReport(name_of(found), str(error))
    problem = validation.problem_of(report.node, report)
    return report if problem is None else RefusedReport(report.node, problem)
