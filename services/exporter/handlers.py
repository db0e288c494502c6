"""One node's round, over and over: wait for a reason, scan, decide, hand the report to the outbox.

A node that cannot be read backs off alone; nothing here is shared between nodes but the outbox.
Must not know how reads are made (`scan`) or sent (`outbox`), and decides nothing itself (`core`).
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from services.exporter import core, status_file
from services.exporter.kubelet_config import KubeletConfigError
from services.exporter.objects import Objects
from services.exporter.outbox import Outbox
from services.exporter.pace import Pace
from services.exporter.scan import NodeReader
from services.exporter.settings import ExporterSettings
from services.exporter.source_grpc import SourceError
from services.exporter.sysfs import SysfsError
from shared.bus import subjects
from shared.bus.port import Message
from shared.domain.report import MAX_REPORT_BYTES, Report
from shared.runtime.waiting import set_within
from shared.telemetry import names
from shared.telemetry.instruments import count, observe, set_gauge
from shared.telemetry.propagation import headers, span

MAX_BACKOFF_S = 30.0
JITTER = 0.1
READ_ERRORS = (SourceError, SysfsError, KubeletConfigError, ValueError, OSError)
_encoder = msgspec.json.Encoder()


class ReportTooLarge(ValueError):
    """A node lists more than a report may say; names sizes and remedy."""


class NodeStatus(msgspec.Struct):
    """What health and metrics say about one node. `error` is empty while the node can be read."""

    node: str
    scans: int = 0
    failures: int = 0
    failures_in_a_row: int = 0
    error: str = ""
    scan_ms: float = 0.0


class NodeReporter:
    """The round of one node. `on_error(status)` hears the first failure of a row and, with an empty
    error, its end.
    """

    def __init__(
        self,
        node: str,
        reader: NodeReader,
        settings: ExporterSettings,
        outbox: Outbox,
        on_error: Callable[[NodeStatus], None],
        watched: bool = False,
        objects: Objects | None = None,
    ) -> None:
        self.status = NodeStatus(node)
        self._reader = reader
        self._settings = settings
        self._rules = settings.rules
        self._outbox = outbox
        self._objects = objects
        self._on_error = on_error
        self._instance = f"{node}-{random.getrandbits(48):012x}"
        self._made: tuple[core.Scan, Report] | None = None
        self._published = core.Published()
        self._next_full_s = 0.0
        self._triggered = asyncio.Event()
        self._woken_s = self._due_s = math.inf
        self._trailing: asyncio.TimerHandle | None = None
        self._quiet_at_s = 0.0
        self._pace = Pace(settings.max_events_per_time_unit, settings.time_unit_to_limit_events_s)
        self._list_every_s = (
            settings.active_interval_s
            if not watched and settings.active_interval_s > 0
            else math.inf
        )
        self._asked = False
        self._told = b""

    def trigger(self) -> None:
        """The kubelet's state may have changed: scan soon, and once more when no further change
        came for a while, since podresources may show a change later than the kubelet's files do. A
        scan that finds that they agree spares the other."""
        self._wake()
        loop = asyncio.get_running_loop()
        self._quiet_at_s = loop.time() + self._settings.trailing_s
        if self._trailing is None:
            self._trailing = loop.call_at(self._quiet_at_s, self._trail)

    def _trail(self) -> None:
        """One timer goes on until it is quiet: a busy node's changes move it, and do not make
        another each.
        """
        loop = asyncio.get_running_loop()
        if loop.time() < self._quiet_at_s:
            self._trailing = loop.call_at(self._quiet_at_s, self._trail)
        else:
            self._trailing = None
            self._wake()

    def _spare_trail(self) -> None:
        """No scan later on, unless something has changed during this one."""
        if self._trailing is not None and not self._triggered.is_set():
            self._trailing.cancel()
            self._trailing = None

    def ask_full(self) -> None:
        """The bus may have lost the report: publish in full soon."""
        self._asked = True
        self._wake()

    def _wake(self) -> None:
        if not self._triggered.is_set():
            self._woken_s = time.monotonic()
        self._triggered.set()

    async def close(self) -> None:
        """Let go of the kubelet."""
        if self._trailing is not None:
            self._trailing.cancel()
        await self._reader.close()

    async def run(self) -> None:
        """Report for ever; ends by cancellation. The first scan is spread over a tenth of the
        interval.
        """
        await asyncio.sleep(random.random() * min(1.0, self._settings.interval_s * JITTER))
        while True:
            pause_s = await self.round()
            await self._wait(pause_s)

    async def round(self) -> float:
        """One scan and its outcome; returns the seconds until the next one is due without a
        trigger.
        """
        started = time.monotonic()
        self._tell_delay(started)
        self._triggered.clear()
        full = self._asked or started >= self._next_full_s
        try:
            with span(names.SPAN_REPORT, node=self.status.node):
                scan = await self._reader.scan()
                made = self._report(scan)
                self._tell_status(scan, made)
                published = self._publish(made, full)
                if core.is_steady(scan):
                    self._spare_trail()
        except READ_ERRORS as error:
            return self._failed(error)
        self._succeeded(time.monotonic() - started, "periodic" if full else "reactive")
        if full or published:
            self._next_full_s = started + self._settings.interval_s * random.uniform(1 - JITTER, 1)
        return max(0.0, self._next_full_s - time.monotonic())

    def _report(self, scan: core.Scan) -> Report:
        """A scan's report, made anew where the last one's does not say it already."""
        made = core.report_again(*self._made, scan) if self._made is not None else None
        made = made or core.report(self.status.node, self._instance, scan, self._rules)
        self._made = scan, made
        return made

    def _tell_delay(self, now_s: float) -> None:
        """How late this scan is; the first one was asked for by nobody."""
        trigger, since_s = (
            ("reactive", self._woken_s) if self._triggered.is_set() else ("periodic", self._due_s)
        )
        if since_s < math.inf:
            set_gauge(
                names.RTE_WAKEUP_DELAY,
                max(0.0, now_s - since_s) * 1000,
                node=self.status.node,
                trigger=trigger,
            )

    def _publish(self, report: Report, due: bool) -> bool:
        """Publish what is news or due; whether it was. The next is due an interval after any:
        counted from rounds that had nothing to publish, two reports could be two intervals apart,
        and the node be taken for silent."""
        now_ms = int(time.monotonic() * 1000)
        interval_ms = int(self._settings.interval_s * (1 - JITTER) * 1000)
        if not core.should_publish(
            self._published, report, now_ms, interval_ms, due or self._asked
        ):
            return False
        if self._objects is not None:
            before = self._published.report
            same = before is not None and core.same_content(before, report)
            listed = core.as_listed(report, self._made[0]) if self._made is not None else report
            self._objects.put(listed, "periodic" if same else "reactive")
        if "bus" in self._settings.publish:
            self._outbox.put(report.node, self._message(report))
        self._asked = False
        self._published = core.Published(report, now_ms)
        return True

    def _message(self, report: Report) -> Message:
        """Raises ReportTooLarge: the store would refuse it, NATS above 1 MiB too, and what waits
        beside it with it.
        """
        data = _encoder.encode(report)
        if len(data) > MAX_REPORT_BYTES:
            raise ReportTooLarge(
                f"its report has {len(data)} bytes, with {len(report.placements or ())} containers; topology-store reads at most "
                f"{MAX_REPORT_BYTES}: spread the node's pods, or leave some out with --exclude-pod"
            )
        identity = {subjects.MSG_ID: f"{self._instance}:{report.boot_time_ms}", **headers()}
        return Message(subjects.report(report.node), data, identity)

    def _tell_status(self, scan: core.Scan, made: Report) -> None:
        """Write the fingerprint's status file where one is wanted and it would say something else."""
        path = self._settings.pods_fingerprint_status_file
        if not path:
            return
        data = status_file.content(
            made.node, made.fingerprint, core.fingerprinted(scan, self._rules)
        )
        if data != self._told:
            status_file.write(Path(path), data)
            self._told = data

    async def _wait(self, pause_s: float) -> None:
        """Until the next round is due, or a trigger came and the pace allows it."""
        limit_s = min(pause_s, self._list_every_s)
        self._due_s = time.monotonic() + limit_s
        if await set_within(self._triggered, limit_s):
            await asyncio.sleep(self._settings.settle_s)
            if (wait_s := self._pace.wait_s(time.monotonic())) > 0:
                await asyncio.sleep(wait_s)

    def _failed(self, error: Exception) -> float:
        if isinstance(error, SourceError):
            count(names.RTE_API_FAILURES, node=self.status.node, function_name=error.call)
        count(names.NFD_SCAN_ERRORS)
        status = self.status
        status.failures += 1
        status.failures_in_a_row += 1
        count(names.SCANS, result="failed")
        first = status.error == ""
        status.error = str(error)
        self._reader.forget()
        if first:
            self._on_error(status)
        return min(
            MAX_BACKOFF_S,
            self._settings.interval_s,
            0.25 * float(2 ** min(status.failures_in_a_row, 8)),
        )

    def _succeeded(self, took_s: float, trigger: str) -> None:
        labels = {
            "node": self.status.node,
            "operation_name": "podresources_scan",
            "trigger": trigger,
        }
        set_gauge(names.RTE_OPERATION_DELAY, took_s * 1000, **labels)
        recovered = self.status.error != ""
        self.status.scans += 1
        self.status.scan_ms = round(took_s * 1000, 3)
        count(names.SCANS, result="ok")
        observe(names.SCAN_LATENCY, took_s)
        self.status.failures_in_a_row = 0
        self.status.error = ""
        if recovered:
            self._on_error(self.status)
