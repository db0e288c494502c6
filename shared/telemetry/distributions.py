"""Distributions, counted into buckets here and shown to Prometheus when it asks.

OpenTelemetry can be asked for counts and gauges at a scrape, but must be told of each value of a histogram, which costs 7 us and
stands in every append, page and call (opentelemetry-sdk 1.45, measured: 7 us for 1). Must not know which distributions there are.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate
from threading import Lock

from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from shared.telemetry.declare import Metric

_lock = Lock()


class Distribution:
    """One histogram: for each value of its labels how many values fell into each bucket, and their sum."""

    def __init__(self, metric: Metric) -> None:
        self.metric = metric
        self._counts: dict[tuple[str, ...], list[int]] = {}
        self._sums: dict[tuple[str, ...], float] = {}

    def record(self, labels: tuple[str, ...], value: float) -> None:
        """Count a value; one that equals a bound belongs under it."""
        bucket = bisect_left(self.metric.buckets, value)
        with _lock:
            counts = self._counts.get(labels)
            if counts is None:
                counts = self._counts[labels] = [0] * (len(self.metric.buckets) + 1)
                self._sums[labels] = 0.0
            counts[bucket] += 1
            self._sums[labels] += value

    def family(self) -> HistogramMetricFamily:
        """All of it as Prometheus reads it: each bucket counts what is in those before it, too."""
        bounds = [*map(floatToGoString, self.metric.buckets), "+Inf"]
        shown = HistogramMetricFamily(self.metric.exposed, self.metric.says, labels=self.metric.labels)
        with _lock:
            for labels, counts in self._counts.items():
                shown.add_metric(labels, list(zip(bounds, accumulate(counts), strict=True)), self._sums[labels])
        return shown


class Distributions(Collector):
    """All distributions of a process by name; each begins when its first value is recorded."""

    def __init__(self) -> None:
        self._kept: dict[str, Distribution] = {}

    def of(self, metric: Metric) -> Distribution:
        """The one that is declared as `metric`."""
        found = self._kept.get(metric.name)
        if found is None:
            found = self._kept[metric.name] = Distribution(metric)
        return found

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """For a scrape."""
        yield from [kept.family() for kept in list(self._kept.values())]
