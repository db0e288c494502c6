"""Set up the telemetry of a process: logs, a Prometheus reader for metrics, spans to a file if set,
metrics and spans to a collector if set.

OpenTelemetry's providers are process-wide and set once: a second set-up changes only the logs. They
are imported at first use (a trace file, a collector, or a request for metrics), which saves a tenth
of the start.
"""

from __future__ import annotations

from threading import Thread
from typing import TYPE_CHECKING

import msgspec
from opentelemetry import metrics, trace
from prometheus_client import REGISTRY, generate_latest

from shared.telemetry import logs
from shared.telemetry.collector import Collector

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.trace import TracerProvider


FLUSH_S = 2.0


class TelemetrySettings(msgspec.Struct, frozen=True):
    """Without `trace_file` and a collector no spans are made. `trace_ratio` of new traces are
    recorded; a parent's decision is kept."""

    log_format: logs.Format = "json"
    log_level: str = "info"
    trace_file: str = ""
    trace_ratio: float = 0.01
    trace_file_max_bytes: int = 64 << 20
    collector: Collector = Collector()


class Telemetry:
    """The telemetry of one process."""

    def __init__(self, service: str, tracers: TracerProvider | None, collector: Collector) -> None:
        self._service = service
        self._collector = collector
        self._meters: MeterProvider | None = None
        self._tracers = tracers
        if collector.metrics:
            self._provide_metrics()

    def metrics_page(self) -> bytes:
        """Return the metrics in Prometheus' text format, also at the first call since the start of
        the process: the provider takes over the values of existing instruments."""
        if self._meters is None:
            self._provide_metrics()
        return generate_latest(REGISTRY)

    def _provide_metrics(self) -> None:
        from shared.telemetry.providers import meters

        self._meters = meters(self._service, self._collector.metrics)
        metrics.set_meter_provider(self._meters)

    def flush(self) -> None:
        """Export what is left, for at most FLUSH_S: each exporter tries a collector that is
        away for 10 s, which is all that a service has to drain.
        """
        flushing = Thread(target=self._flush, name="telemetry-flush", daemon=True)
        flushing.start()
        flushing.join(FLUSH_S)

    def _flush(self) -> None:
        if self._tracers is not None:
            self._tracers.force_flush(2000)
        if self._meters is not None and self._collector.metrics:
            self._meters.force_flush(2000)


_process_telemetry: list[Telemetry] = []


def set_up(service: str, settings: TelemetrySettings) -> Telemetry:
    """Set up logs now, and metrics and traces at the first call in the process."""
    logs.configure(service, settings.log_format, settings.log_level)
    if not _process_telemetry:
        _process_telemetry.append(
            Telemetry(service, _tracers(service, settings), settings.collector)
        )
    return _process_telemetry[0]


def _tracers(service: str, settings: TelemetrySettings) -> TracerProvider | None:
    if not (settings.trace_file or settings.collector.traces):
        return None
    from shared.telemetry.providers import tracers

    provider = tracers(
        service,
        settings.trace_file,
        settings.trace_ratio,
        settings.trace_file_max_bytes,
        settings.collector,
    )
    trace.set_tracer_provider(provider)
    return provider
