"""How a process sets up its telemetry: logs, a Prometheus reader for metrics, spans to a file when
one is named.

The providers of OpenTelemetry are process-wide and set once; setting up again changes the logs
only. They are loaded by what needs them, a file for spans or the first who asks for metrics: that
is a tenth of a start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from opentelemetry import metrics, trace
from prometheus_client import REGISTRY, generate_latest

from shared.telemetry import logs

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider


class TelemetrySettings(msgspec.Struct, frozen=True):
    """`trace_file` empty: no spans are made. `trace_ratio` of new traces are recorded; a parent's
    decision is kept.
    """

    log_format: logs.Format = "json"
    log_level: str = "info"
    trace_file: str = ""
    trace_ratio: float = 0.01
    trace_file_max_bytes: int = 64 << 20


class Telemetry:
    """What a process holds of its telemetry."""

    def __init__(self, service: str, tracers: TracerProvider | None) -> None:
        self._service = service
        self._shows_metrics = False
        self._tracers = tracers

    def metrics_page(self) -> bytes:
        """The metrics in Prometheus' text form. Whoever asks first is told of all since the process
        began, too: instruments keep their values, and a provider takes over those that are there.
        """
        if not self._shows_metrics:
            from shared.telemetry.providers import meters

            metrics.set_meter_provider(meters(self._service))
            self._shows_metrics = True
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
        _made.append(Telemetry(service, _tracers(service, settings)))
    return _made[0]


def _tracers(service: str, settings: TelemetrySettings) -> TracerProvider | None:
    if not settings.trace_file:
        return None
    from shared.telemetry.providers import tracers

    provider = tracers(
        service, settings.trace_file, settings.trace_ratio, settings.trace_file_max_bytes
    )
    trace.set_tracer_provider(provider)
    return provider
