"""Declare metrics, spans and log events, each with its help text.

A declaration registers the name. A name that is declared twice is an error at import.
"""

from __future__ import annotations

from collections.abc import Mapping
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
    """A metric: `name` without Prometheus' suffixes, and `labels`, its only attribute keys."""

    name: str
    kind: Kind
    unit: str
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()

    @property
    def exposed(self) -> str:
        """The name at /metrics (of a histogram without _bucket, _sum, _count)."""
        base = self.name + {"s": "_seconds", "By": "_bytes"}.get(self.unit, "")
        return base + "_total" if self.kind == "counter" else base


class LogEvent(msgspec.Struct, frozen=True):
    """A log event: a sentence of meaning, and a remedy if it is logged at warning or above."""

    meaning: str
    remedy: str = ""


METRICS: dict[str, Metric] = {}
SPANS: dict[str, str] = {}
EVENTS: dict[str, LogEvent] = {}


def counter(name: str, help: str, *labels: str, unit: str = "1") -> Metric:
    return _metric(Metric(name, "counter", unit, help, labels))


def gauge(name: str, help: str, *labels: str, unit: str = "") -> Metric:
    return _metric(Metric(name, "gauge", unit, help, labels))


def seconds(name: str, help: str, *labels: str) -> Metric:
    return _metric(Metric(name, "histogram", "s", help, labels, SECONDS))


def sizes(name: str, help: str, *labels: str) -> Metric:
    return _metric(Metric(name, "histogram", "", help, labels, COUNTS))


def _metric(metric: Metric) -> Metric:
    _once(METRICS, metric.name)
    METRICS[metric.name] = metric
    return metric


def span(name: str, help: str) -> str:
    _once(SPANS, name)
    SPANS[name] = help
    return name


def event(name: str, meaning: str, remedy: str = "") -> str:
    """Declare the event name of a log line. `remedy` says what an operator does about it."""
    _once(EVENTS, name)
    EVENTS[name] = LogEvent(meaning, remedy)
    return name


def _once(declared: Mapping[str, object], name: str) -> None:
    if name in declared:
        raise ValueError(f"{name} is declared twice in shared/telemetry/names.py")
