"""Set up the telemetry of a process: logs, a Prometheus reader for metrics, spans to a file if set.

OpenTelemetry's providers are process-wide and set once: a second set-up changes only the logs. They
are imported at first use (a trace file, or a request for metrics), which saves a tenth of the
start.
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
    """Without `trace_file` no spans are made. `trace_ratio` of new traces are recorded; a parent's
    decision is kept."""

    log_format: logs.Format = "json"
    log_level: str = "info"
    trace_file: str = ""
    trace_ratio: float = 0.01
    trace_file_max_bytes: int = 64 << 20


class Telemetry:
    """The telemetry of one process."""

    def __init__(self, service: str, tracers: TracerProvider | None) -> None:
        self._service = service
        self._has_metrics_provider = False
        self._tracers = tracers

    def metrics_page(self) -> bytes:
        """Return the metrics in Prometheus' text format, also at the first call since the start of
        the process: the provider takes over the values of existing instruments."""
        if not self._has_metrics_provider:
            from shared.telemetry.providers import meters

            metrics.set_meter_provider(meters(self._service))
            self._has_metrics_provider = True
        return generate_latest(REGISTRY)

    def flush(self) -> None:
        if self._tracers is not None:
            self._tracers.force_flush(2000)


_process_telemetry: list[Telemetry] = []


def set_up(service: str, settings: TelemetrySettings) -> Telemetry:
    """Set up logs now, and metrics and traces at the first call in the process."""
    logs.configure(service, settings.log_format, settings.log_level)
    if not _process_telemetry:
        _process_telemetry.append(Telemetry(service, _tracers(service, settings)))
    return _process_telemetry[0]


def _tracers(service: str, settings: TelemetrySettings) -> TracerProvider | None:
    if not settings.trace_file:
        return None
    from shared.telemetry.providers import tracers

    provider = tracers(
        service, settings.trace_file, settings.trace_ratio, settings.trace_file_max_bytes
    )
    trace.set_tracer_provider(provider)
    return provider
