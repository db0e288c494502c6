"""Recording: `count`, `observe`, `set_gauge`, `timed`, each by a name declared in `names`.

An instrument is made at first use, from whatever meter provider the process has set; without one, recording costs
next to nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from opentelemetry import metrics

from shared.telemetry.declare import Metric

_instruments: dict[str, Any] = {}


def reset() -> None:
    """Forget the instruments, so that the next use takes them from a new meter provider."""
    _instruments.clear()


def count(metric: Metric, amount: float = 1, **labels: str) -> None:
    """Add to a counter."""
    _instrument(metric, labels).add(amount, labels)


def observe(metric: Metric, value: float, **labels: str) -> None:
    """Record a value of a histogram."""
    _instrument(metric, labels).record(value, labels)


def set_gauge(metric: Metric, value: float, **labels: str) -> None:
    """Set a gauge."""
    _instrument(metric, labels).set(value, labels)


@contextmanager
def timed(metric: Metric, **labels: str) -> Iterator[None]:
    """Record how long the block took, in seconds, whether or not it raised."""
    start_s = time.perf_counter()
    try:
        yield
    finally:
        observe(metric, time.perf_counter() - start_s, **labels)


def _instrument(metric: Metric, labels: dict[str, str]) -> Any:
    found = _instruments.get(metric.name)
    if found is None:
        found = _instruments[metric.name] = _make(metric)
    if len(labels) != len(metric.labels) or any(key not in labels for key in metric.labels):
        raise ValueError(f"{metric.name} takes the labels {metric.labels}, not {tuple(labels)}")
    return found


def _make(metric: Metric) -> Any:
    meter = metrics.get_meter("topolog")
    if metric.kind == "counter":
        return meter.create_counter(metric.name, metric.unit, metric.says)
    if metric.kind == "gauge":
        return meter.create_gauge(metric.name, metric.unit, metric.says)
    return meter.create_histogram(metric.name, metric.unit, metric.says, explicit_bucket_boundaries_advisory=list(metric.buckets))
