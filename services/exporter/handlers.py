"""The rounds of one node: wait for a trigger, scan, decide, pass the report to the outbox.

A node that cannot be read backs off alone; nodes share only the outbox. Must not know how reads are
made (`scan`) or sent (`outbox`), and decides nothing itself (`core`).
"""

from __future__ import annotations

import asyncio
import math
import os
import random
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from services.exporter import core
from services.exporter.kubelet_config import KubeletConfigError
from services.exporter.objects import Objects
from services.exporter.outbox import Outbox
from services.exporter.report_size import fitted
from services.exporter.scan import NodeReader
from services.exporter.settings import ExporterSettings
from services.exporter.source_grpc import SourceError
from services.exporter.sysfs import SysfsError
from shared.bus import subjects
from shared.bus.port import Message
from shared.domain.report import Report
from shared.runtime.waiting import set_within
from shared.telemetry import exporter_names, names
from shared.telemetry.instruments import count, observe, set_gauge
from shared.telemetry.propagation import headers, span

MAX_BACKOFF_S = 30.0
JITTER = 0.1
READ_ERRORS = (SourceError, SysfsError, KubeletConfigError, ValueError, OSError)
_encoder = msgspec.json.Encoder()


class NodeStatus(msgspec.Struct):
    """State of one node for health and metrics.

    `error` is empty while the node can be read. `notices` are gaps of its report: what was cut to
    keep it small, and why its policy is unknown.
    """

    node: str
    scans: int = 0
    failures: int = 0
    failures_in_a_row: int = 0
    error: str = ""
    scan_ms: float = 0.0
    notices: tuple[str, ...] = ()


class Pace:
    """A token bucket that limits scans after changes: `events` in `unit_s` seconds.

    A full bucket allows `events` scans at once, so that the first changes of a burst are read
    without delay. `events` 0 means no limit. Pure: the time comes as a number.
    """

    def __init__(self, events: int, unit_s: float) -> None:
        self._events = events
        self._per_s = events / unit_s if events else 0.0
        self._tokens = float(events)
        self._updated_s = 0.0

    def wait_s(self, now_s: float) -> float:
        """Take one scan; return the seconds to wait before it."""
        if not self._events:
            return 0.0
        refill = max(0.0, now_s - self._updated_s) * self._per_s
        self._tokens = min(float(self._events), self._tokens + refill) - 1.0
        self._updated_s = now_s
        return max(0.0, -self._tokens / self._per_s)


class NodeReporter:
    """Runs the rounds of one node.

    Calls `on_status(status)` at the first failure of a row, at its end, and if the notices change.
    """

    def __init__(
        self,
        node: str,
        reader: NodeReader,
        settings: ExporterSettings,
        outbox: Outbox,
        on_status: Callable[[NodeStatus], None],
        watched: bool = False,
        objects: Objects | None = None,
    ) -> None:
        self.status = NodeStatus(node)
        self._reader = reader
        self._settings = settings
        self._rules = settings.rules
        self._outbox = outbox
        self._objects = objects
        self._on_status = on_status
        self._instance = f"{node}-{random.getrandbits(48):012x}"
        self._made: tuple[core.Scan, Report] | None = None
        self._published = core.Published()
        self._next_full_s = 0.0
        self._triggered = asyncio.Event()
        self._woken_s = self._due_s = math.inf
        self._trailing: asyncio.TimerHandle | None = None
        self._quiet_at_s = 0.0
        self._pace = Pace(settings.max_events_per_time_unit, settings.time_unit_to_limit_events_s)
        lists_by_time = not watched and settings.active_interval_s > 0
        self._list_every_s = settings.active_interval_s if lists_by_time else math.inf
        self._full_requested = False
        self._status_written = b""

    def trigger(self) -> None:
        """Scan soon, because the kubelet's state may have changed.

        Another scan follows when no further change came for a while, since podresources may show a
        change later than the kubelet's files do. It is skipped if a scan before it shows that they
        agree.
        """
        self._wake()
        loop = asyncio.get_running_loop()
        self._quiet_at_s = loop.time() + self._settings.trailing_s
        if self._trailing is None:
            self._trailing = loop.call_at(self._quiet_at_s, self._trail)

    def _trail(self) -> None:
        # One timer moves on until it is quiet: a busy node's changes do not make one timer each.
        loop = asyncio.get_running_loop()
        if loop.time() < self._quiet_at_s:
            self._trailing = loop.call_at(self._quiet_at_s, self._trail)
        else:
            self._trailing = None
            self._wake()

    def _cancel_trailing(self) -> None:
        """Skip the trailing scan, unless something changed during this one."""
        if self._trailing is not None and not self._triggered.is_set():
            self._trailing.cancel()
            self._trailing = None

    def request_full(self) -> None:
        """Publish in full soon, because the bus may have lost the report."""
        self._full_requested = True
        self._wake()

    def _wake(self) -> None:
        if not self._triggered.is_set():
            self._woken_s = time.monotonic()
        self._triggered.set()

    async def close(self) -> None:
        """Close the connection to the kubelet."""
        if self._trailing is not None:
            self._trailing.cancel()
        await self._reader.close()

    async def run(self) -> None:
        """Report until cancelled; first scans are spread over a tenth of the interval."""
        await asyncio.sleep(random.random() * min(1.0, self._settings.interval_s * JITTER))
        while True:
            pause_s = await self.round()
            await self._wait(pause_s)

    async def round(self) -> float:
        """Scan once and act on it; return the seconds until the next round without a trigger."""
        started = time.monotonic()
        self._record_delay(started)
        self._triggered.clear()
        full = self._full_requested or started >= self._next_full_s
        try:
            with span(names.SPAN_REPORT, node=self.status.node):
                scan = await self._reader.scan()
                report = self._report(scan)
                self._write_status(scan, report)
                published = self._publish(report, full)
                if core.is_steady(scan):
                    self._cancel_trailing()
        except READ_ERRORS as error:
            return self._failed(error)
        self._succeeded(time.monotonic() - started, "periodic" if full else "reactive")
        if full or published:
            self._next_full_s = started + self._settings.interval_s * random.uniform(1 - JITTER, 1)
        return max(0.0, self._next_full_s - time.monotonic())

    def _report(self, scan: core.Scan) -> Report:
        """Return the scan's report; the last one with a new moment if nothing changed."""
        report = core.report_again(*self._made, scan) if self._made is not None else None
        if report is None:
            whole = core.report(self.status.node, self._instance, scan, self._rules)
            report, cut = fitted(whole)
            self._note((*scan.notices, cut) if cut else scan.notices)
        self._made = scan, report
        return report

    def _note(self, notices: tuple[str, ...]) -> None:
        if notices != self.status.notices:
            self.status.notices = notices
            self._on_status(self.status)

    def _record_delay(self, now_s: float) -> None:
        """Record how late this scan is; the first one is due at no time."""
        trigger, since_s = "periodic", self._due_s
        if self._triggered.is_set():
            trigger, since_s = "reactive", self._woken_s
        if since_s < math.inf:
            set_gauge(
                exporter_names.RTE_WAKEUP_DELAY,
                max(0.0, now_s - since_s) * 1000,
                node=self.status.node,
                trigger=trigger,
            )

    def _publish(self, report: Report, due: bool) -> bool:
        """Publish a report that is due or changed; return True if it was published.

        The next one is due an interval after any. If it were counted from rounds that published
        nothing, two reports could be two intervals apart, and the node would expire.
        """
        now_ms = int(time.monotonic() * 1000)
        interval_ms = int(self._settings.interval_s * (1 - JITTER) * 1000)
        requested = due or self._full_requested
        if not core.should_publish(self._published, report, now_ms, interval_ms, requested):
            return False
        if self._objects is not None:
            last = self._published.report
            same = last is not None and core.same_content(last, report)
            listed = core.as_listed(report, self._made[0]) if self._made is not None else report
            self._objects.put(listed, "periodic" if same else "reactive")
        if "bus" in self._settings.publish:
            self._outbox.put(report.node, self._message(report))
        self._full_requested = False
        self._published = core.Published(report, now_ms)
        return True

    def _message(self, report: Report) -> Message:
        identity = {subjects.MSG_ID: f"{self._instance}:{report.boot_time_ms}", **headers()}
        return Message(subjects.report(report.node), _encoder.encode(report), identity)

    def _write_status(self, scan: core.Scan, report: Report) -> None:
        """Write the fingerprint's status file if one is configured and its content changed."""
        path = self._settings.pods_fingerprint_status_file
        if not path:
            return
        pods = core.fingerprinted(scan, self._rules)
        data = status_content(report.node, report.fingerprint, pods)
        if data != self._status_written:
            write_whole(Path(path), data)
            self._status_written = data

    async def _wait(self, pause_s: float) -> None:
        """Wait until the next round is due, or a trigger came and the pace allows it."""
        limit_s = min(pause_s, self._list_every_s)
        self._due_s = time.monotonic() + limit_s
        if await set_within(self._triggered, limit_s):
            await asyncio.sleep(self._settings.settle_s)
            if (wait_s := self._pace.wait_s(time.monotonic())) > 0:
                await asyncio.sleep(wait_s)

    def _failed(self, error: Exception) -> float:
        if isinstance(error, SourceError):
            count(exporter_names.RTE_API_FAILURES, node=self.status.node, function_name=error.call)
        count(exporter_names.NFD_SCAN_ERRORS)
        status = self.status
        status.failures += 1
        status.failures_in_a_row += 1
        count(exporter_names.SCANS, result="failed")
        first = status.error == ""
        status.error = str(error)
        self._reader.forget()
        if first:
            self._on_status(status)
        backoff_s = 0.25 * float(2 ** min(status.failures_in_a_row, 8))
        return min(MAX_BACKOFF_S, self._settings.interval_s, backoff_s)

    def _succeeded(self, duration_s: float, trigger: str) -> None:
        labels = {
            "node": self.status.node,
            "operation_name": "podresources_scan",
            "trigger": trigger,
        }
        set_gauge(exporter_names.RTE_OPERATION_DELAY, duration_s * 1000, **labels)
        recovered = self.status.error != ""
        self.status.scans += 1
        self.status.scan_ms = round(duration_s * 1000, 3)
        count(exporter_names.SCANS, result="ok")
        observe(exporter_names.SCAN_LATENCY, duration_s)
        self.status.failures_in_a_row = 0
        self.status.error = ""
        if recovered:
            self._on_status(self.status)


def status_content(node: str, fingerprint: str, pods: Iterable[tuple[str, str]]) -> bytes:
    """Return the JSON of the fingerprint's status file, as podfingerprint 0.2 writes it.

    `pods` are (namespace, name). Empty fields are left out.
    """
    listed = [{"Namespace": namespace, "Name": name} for namespace, name in sorted(pods)]
    content = {"fingerprintComputed": fingerprint, "pods": listed, "nodeName": node}
    return msgspec.json.encode({key: value for key, value in content.items() if value})


def write_whole(path: Path, data: bytes) -> None:
    """Replace the file, so that no reader sees half of it. Raises OSError."""
    temporary = path.with_name(f"__{path.name}.{os.getpid()}")
    temporary.write_bytes(data)
    temporary.replace(path)
