"""The providers of OpenTelemetry's SDK: metrics for Prometheus, spans for a file, both for a
collector. Imported only if needed.
"""

from __future__ import annotations

from pathlib import Path

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio

from shared.domain.version import VERSION
from shared.telemetry.collector import Collector
from shared.telemetry.trace_file import FileSpanExporter


def meters(service: str, to_collector: bool) -> MeterProvider:
    """Return a provider that shows the instruments in Prometheus' registry, and sends them to a
    collector if `to_collector`.
    """
    readers: list[MetricReader] = [
        PrometheusMetricReader(disable_target_info=True, scope_info_enabled=False)
    ]
    if to_collector:
        from shared.telemetry.collector_metrics import CollectorMetricExporter

        readers.append(PeriodicExportingMetricReader(CollectorMetricExporter()))
    return MeterProvider(readers, _resource(service), shutdown_on_exit=False)


def tracers(service: str, path: str, ratio: float, max_bytes: int, to: Collector) -> TracerProvider:
    """Return a provider that records `ratio` of new traces, or what the collector's sampler says,
    and writes them to the file `path` if it is not empty, and to the collector if one is set.
    """
    sampler = None if to.sampler_is_set else ParentBasedTraceIdRatio(ratio)
    provider = TracerProvider(sampler, _resource(service), shutdown_on_exit=False)
    exporters: list[SpanExporter] = [FileSpanExporter(Path(path), max_bytes)] if path else []
    if to.traces:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        exporters.append(OTLPSpanExporter())
    for exporter in exporters:
        provider.add_span_processor(
            BatchSpanProcessor(exporter, max_queue_size=4096, schedule_delay_millis=1000)
        )
    return provider


def _resource(service: str) -> Resource:
    return Resource.create({"service.name": service, "service.version": VERSION})
