"""Recording: `count`, `observe`, `set_gauge`, `timed`, `worked`, each by a name declared in
`names`.

An instrument is made at first use; a meter provider that the process sets later takes over those
that are there. Counts and gauges are kept here and read when somebody collects: an SDK that is told
of each costs ten times as much (opentelemetry-sdk 1.45, measured: 6 us for 0.5 to 0.8). It must be
told of each value of a histogram (7 us), so those are Prometheus' own (1.6 us).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from threading import Lock

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, Observation
from prometheus_client import Histogram, disable_created_metrics

from shared.telemetry.declare import Metric

disable_created_metrics()  # type: ignore[no-untyped-call]
_histograms: dict[str, Histogram] = {}
_kept: dict[str, _Kept] = {}
_lock = Lock()


class _Kept:
    """The values of one counter or gauge by the values of its labels, in the order in which they
    are declared.
    """

    def __init__(self, metric: Metric) -> None:
        self.values: dict[tuple[str, ...], float] = {}
        self._labels = metric.labels
        meter = metrics.get_meter("topolog")
        make = (
            meter.create_observable_counter
            if metric.kind == "counter"
            else meter.create_observable_gauge
        )
        make(metric.name, [self._observed], metric.unit, metric.says)

    def _observed(self, _options: CallbackOptions) -> Iterable[Observation]:
        with _lock:
            found = list(self.values.items())
        return [
            Observation(value, dict(zip(self._labels, key, strict=True))) for key, value in found
        ]


def count(metric: Metric, amount: float = 1, **labels: str) -> None:
    """Add to a counter."""
    values, key = _kept_of(metric).values, _key(metric, labels)
    with _lock:
        values[key] = values.get(key, 0) + amount


def observe(metric: Metric, value: float, **labels: str) -> None:
    """Record a value of a histogram."""
    shown = _histograms.get(metric.name) or _histogram(metric)
    key = _key(metric, labels)
    (shown.labels(*key) if key else shown).observe(value)


def set_gauge(metric: Metric, value: float, **labels: str) -> None:
    """Set a gauge."""
    _kept_of(metric).values[_key(metric, labels)] = value


@contextmanager
def timed(metric: Metric, **labels: str) -> Iterator[None]:
    """Record how long the block took, in seconds, whether or not it raised."""
    start_s = time.perf_counter()
    try:
        yield
    finally:
        observe(metric, time.perf_counter() - start_s, **labels)


@contextmanager
def worked(metric: Metric, **labels: str) -> Iterator[None]:
    """Count the CPU time that this thread spent in the block, in seconds, whether or not it raised."""
    start_s = time.thread_time()
    try:
        yield
    finally:
        count(metric, time.thread_time() - start_s, **labels)


def _key(metric: Metric, labels: dict[str, str]) -> tuple[str, ...]:
    if len(labels) == len(metric.labels):
        try:
            return tuple([labels[name] for name in metric.labels])
        except KeyError:
            pass
    raise ValueError(f"{metric.name} takes the labels {metric.labels}, not {tuple(labels)}")


def _kept_of(metric: Metric) -> _Kept:
    found = _kept.get(metric.name)
    if found is None:
        found = _kept[metric.name] = _Kept(metric)
    return found


def _histogram(metric: Metric) -> Histogram:
    with _lock:
        found = _histograms.get(metric.name)
        if found is None:
            found = _histograms[metric.name] = Histogram(
                metric.exposed, metric.says, metric.labels, buckets=metric.buckets
            )
    return found
