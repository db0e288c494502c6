"""How a process sets up its telemetry: logs, a Prometheus reader for metrics, spans to a file when one is named.

The providers of OpenTelemetry are process-wide and set once; setting up again changes the logs only.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
from opentelemetry import metrics, trace
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio
from prometheus_client import REGISTRY, generate_latest

from shared.telemetry import logs
from shared.telemetry.trace_file import FileSpanExporter


class TelemetrySettings(msgspec.Struct, frozen=True):
    """`trace_file` empty: no spans are made. `trace_ratio` of new traces are recorded; a parent's decision is kept."""

    log_format: logs.Format = "json"
    log_level: str = "info"
    trace_file: str = ""
    trace_ratio: float = 0.01
    trace_file_max_bytes: int = 64 << 20


class Telemetry:
    """What a process holds of its telemetry."""

    def __init__(self, meters: MeterProvider, tracers: TracerProvider | None) -> None:
        self._meters = meters
        self._tracers = tracers

    def metrics_page(self) -> bytes:
        """The metrics in Prometheus' text form."""
        return generate_latest(REGISTRY)

    def flush(self) -> None:
        """Write out the spans that wait."""
        if self._tracers is not None:
            self._tracers.force_flush(2000)


_made: list[Telemetry] = []


def set_up(service: str, settings: TelemetrySettings) -> Telemetry:
    """Set up logs now, and metrics and traces at the first call in the process."""
    logs.configure(service, settings.log_format, settings.log_level)
    if not _made:
        resource = Resource.create({"service.name": service})
        meters = MeterProvider([PrometheusMetricReader(disable_target_info=True, scope_info_enabled=False)], resource)
        metrics.set_meter_provider(meters)
        _made.append(Telemetry(meters, _tracers(resource, settings)))
    return _made[0]


def _tracers(resource: Resource, settings: TelemetrySettings) -> TracerProvider | None:
    if not settings.trace_file:
        return None
    provider = TracerProvider(ParentBasedTraceIdRatio(settings.trace_ratio), resource)
    exporter = FileSpanExporter(Path(settings.trace_file), settings.trace_file_max_bytes)
    provider.add_span_processor(BatchSpanProcessor(exporter, max_queue_size=4096, schedule_delay_millis=1000))
    trace.set_tracer_provider(provider)
    return provider
