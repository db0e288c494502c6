"""The providers of OpenTelemetry's SDK: metrics for Prometheus and spans for a file. Imported only
if needed.
"""

from __future__ import annotations

from pathlib import Path

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio

from shared.telemetry.trace_file import FileSpanExporter


def meters(service: str) -> MeterProvider:
    """Return a provider that shows the instruments in Prometheus' registry."""
    return MeterProvider(
        [PrometheusMetricReader(disable_target_info=True, scope_info_enabled=False)],
        _resource(service),
    )


def tracers(service: str, path: str, ratio: float, max_bytes: int) -> TracerProvider:
    """Return a provider that writes spans to a file and records `ratio` of new traces."""
    provider = TracerProvider(ParentBasedTraceIdRatio(ratio), _resource(service))
    exporter = FileSpanExporter(Path(path), max_bytes)
    provider.add_span_processor(
        BatchSpanProcessor(exporter, max_queue_size=4096, schedule_delay_millis=1000)
    )
    return provider


def _resource(service: str) -> Resource:
    return Resource.create({"service.name": service})
