"""Metrics for a collector: those of the SDK, and the histograms, which are Prometheus' own
(`instruments`). Imported only if a collector is set.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, cast

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import Exemplar
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExportResult,
    MetricsData,
)
from prometheus_client.samples import Sample

from shared.telemetry.declare import METRICS
from shared.telemetry.instruments import histograms

_NS = 1_000_000_000
_STARTED_NS = time.time_ns()
# Not known: Prometheus keeps neither. The protocol leaves both out then.
_UNKNOWN = cast(float, None)


class CollectorMetricExporter(OTLPMetricExporter):
    """Adds the histograms to each export."""

    def export(
        self, metrics_data: MetricsData, timeout_millis: float | None = 10_000, **options: Any
    ) -> MetricExportResult:
        return super().export(with_histograms(metrics_data), timeout_millis, **options)


def with_histograms(data: MetricsData) -> MetricsData:
    """Return the data with all histograms, in the scope of the other metrics."""
    if not data.resource_metrics or not data.resource_metrics[0].scope_metrics:
        return data
    resource = data.resource_metrics[0]
    scope = resource.scope_metrics[0]
    scope = replace(scope, metrics=[*scope.metrics, *_histograms(time.time_ns())])
    resource = replace(resource, scope_metrics=[scope, *resource.scope_metrics[1:]])
    return replace(data, resource_metrics=[resource, *data.resource_metrics[1:]])


def _histograms(now_ns: int) -> Iterator[Metric]:
    for name, histogram in histograms().items():
        samples = [sample for family in histogram.collect() for sample in family.samples]
        points = [_point(group, now_ns) for group in _by_labels(samples)]
        declared = METRICS[name]
        data = Histogram(points, AggregationTemporality.CUMULATIVE)
        yield Metric(name, declared.help, declared.unit, data)


def _by_labels(samples: Iterable[Sample]) -> Iterator[list[Sample]]:
    """Yield the samples of each set of labels."""
    groups: dict[tuple[tuple[str, str], ...], list[Sample]] = {}
    for sample in samples:
        key = tuple(sorted(item for item in sample.labels.items() if item[0] != "le"))
        groups.setdefault(key, []).append(sample)
    yield from groups.values()


def _point(samples: Iterable[Sample], now_ns: int) -> HistogramDataPoint:
    """Return one point. Prometheus' buckets are cumulative, and those of the protocol are not."""
    total = 0.0
    bounds, counts, exemplars = list[float](), list[int](), list[Exemplar]()
    labels: dict[str, str] = {}
    for sample in samples:
        if sample.name.endswith("_sum"):
            total = sample.value
        elif sample.name.endswith("_bucket"):
            labels = {name: text for name, text in sample.labels.items() if name != "le"}
            bounds.append(float(sample.labels["le"]))
            counts.append(int(sample.value) - sum(counts))
            if sample.exemplar is not None:
                exemplars.append(_exemplar(sample.exemplar))
    return HistogramDataPoint(
        attributes=labels,
        start_time_unix_nano=_STARTED_NS,
        time_unix_nano=now_ns,
        count=sum(counts),
        sum=total,
        bucket_counts=counts,
        explicit_bounds=bounds[:-1],
        min=_UNKNOWN,
        max=_UNKNOWN,
        exemplars=exemplars,
    )


def _exemplar(exemplar: Any) -> Exemplar:
    return Exemplar(
        {},
        exemplar.value,
        int((exemplar.timestamp or 0) * _NS),
        int(exemplar.labels["span_id"], 16),
        int(exemplar.labels["trace_id"], 16),
    )
