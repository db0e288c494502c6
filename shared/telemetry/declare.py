"""What a declared name is: a metric, a span or a log event, each with a sentence that says what it
tells.

Declaring registers; a name declared twice is an error at import.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Kind = Literal["counter", "histogram", "gauge"]

SECONDS = (
    0.0001,
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
)
COUNTS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0)


class Metric(msgspec.Struct, frozen=True):
    """A metric: `name` without the suffixes that Prometheus adds, `labels` the only attribute keys
    that it takes.
    """

    name: str
    kind: Kind
    unit: str
    says: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()

    @property
    def exposed(self) -> str:
        """The name as /metrics shows it (a histogram's without _bucket, _sum, _count)."""
        base = self.name + {"s": "_seconds", "By": "_bytes"}.get(self.unit, "")
        return base + "_total" if self.kind == "counter" else base


METRICS: dict[str, Metric] = {}
SPANS: dict[str, str] = {}
EVENTS: dict[str, str] = {}


def counter(name: str, says: str, *labels: str, unit: str = "1") -> Metric:
    """Declare a count that only grows."""
    return _metric(Metric(name, "counter", unit, says, labels))


def gauge(name: str, says: str, *labels: str, unit: str = "") -> Metric:
    """Declare a value that goes up and down."""
    return _metric(Metric(name, "gauge", unit, says, labels))


def seconds(name: str, says: str, *labels: str) -> Metric:
    """Declare a distribution of durations."""
    return _metric(Metric(name, "histogram", "s", says, labels, SECONDS))


def sizes(name: str, says: str, *labels: str) -> Metric:
    """Declare a distribution of counts."""
    return _metric(Metric(name, "histogram", "", says, labels, COUNTS))


def _metric(metric: Metric) -> Metric:
    _once(METRICS, metric.name)
    METRICS[metric.name] = metric
    return metric


def span(name: str, says: str) -> str:
    """Declare a span name."""
    _once(SPANS, name)
    SPANS[name] = says
    return name


def event(name: str, says: str) -> str:
    """Declare the event name of a log line."""
    _once(EVENTS, name)
    EVENTS[name] = says
    return name


def _once(declared: dict[str, Metric] | dict[str, str], name: str) -> None:
    if name in declared:
        raise ValueError(f"{name} is declared twice in shared/telemetry/names.py")
