"""Which signals go to an OpenTelemetry collector, by the standard OTEL_* variables. Pure.

The SDK's exporters read endpoint, headers, certificates, timeout and compression from the same
environment. Must not know what is exported.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

PROTOCOL = "http/protobuf"


class Collector(msgspec.Struct, frozen=True):
    """`sampler_is_set`: OTEL_TRACES_SAMPLER decides which traces are recorded, not the service's
    own ratio. `problem` says what is wrong with the variables, "" for nothing.
    """

    traces: bool = False
    metrics: bool = False
    sampler_is_set: bool = False
    problem: str = ""


def collector(environment: Mapping[str, str]) -> Collector:
    """Return what the variables ask for. An empty variable counts as unset, as the specification
    says.
    """

    def value(name: str) -> str:
        return environment.get(name, "").strip()

    def is_exported(signal: str) -> bool:
        exporters = value(f"OTEL_{signal}_EXPORTER")
        has_endpoint = value("OTEL_EXPORTER_OTLP_ENDPOINT") or value(
            f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT"
        )
        return "otlp" in exporters.split(",") if exporters else bool(has_endpoint)

    if value("OTEL_SDK_DISABLED").lower() == "true":
        return Collector()
    asked = Collector(
        is_exported("TRACES"), is_exported("METRICS"), bool(value("OTEL_TRACES_SAMPLER"))
    )
    for signal, is_asked in (("TRACES", asked.traces), ("METRICS", asked.metrics)):
        for name in (f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
            if is_asked and value(name) not in ("", PROTOCOL):
                return Collector(
                    problem=f"{name}={value(name)[:40]!a}: Topolog exports by {PROTOCOL} only; "
                    "unset it, and name the collector's HTTP port (4318 by default)"
                )
    return asked
