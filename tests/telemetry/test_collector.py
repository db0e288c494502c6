"""Spans and metrics reach an OpenTelemetry collector by OTLP over HTTP, as the standard variables
say.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue

from shared.domain.version import VERSION
from shared.runtime.app import Exit
from shared.telemetry.collector import Collector, collector

ROOT = Path(__file__).resolve().parents[2]
ENDPOINT = "http://127.0.0.1:4318"
TRACE_ID = "0af7651916cd43dd8448eb211c80319c"

SERVICE = f"""
import os, sys
from shared.telemetry import names
from shared.telemetry.collector import collector
from shared.telemetry.instruments import count, observe, observe_traced
from shared.telemetry.propagation import exemplar, span
from shared.telemetry.setup import TelemetrySettings, set_up

telemetry = set_up("binder", TelemetrySettings(trace_ratio=1.0, collector=collector(os.environ)))
with span("log.append", pod="uid-1"):
    count(names.LOG_LINES_LOST, 3)
observe(names.QUEUED_TO_BOUND, 0.2)
observe_traced(names.QUEUED_TO_BOUND, 0.3, exemplar("00-{TRACE_ID}-b7ad6b7169203331-01"))
observe_traced(names.QUEUED_TO_BOUND, 99.0, exemplar("00-{TRACE_ID}-b7ad6b7169203331-00"))
telemetry.flush()
"""


@contextmanager
def receiving() -> Iterator[tuple[str, dict[str, list[bytes]]]]:
    """Run a server that keeps the bodies of all requests by path."""
    bodies: dict[str, list[bytes]] = {}

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            bodies.setdefault(self.path, []).append(body)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", bodies
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def run(environment: dict[str, str], script: str = SERVICE) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def plain(attributes: Iterator[KeyValue]) -> dict[str, str]:
    return {attribute.key: attribute.value.string_value for attribute in attributes}


def test_spans_and_metrics_arrive_with_an_exemplar_of_a_recorded_trace() -> None:
    with receiving() as (url, bodies):
        ended = run({"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_EXPORTER_OTLP_COMPRESSION": "none"})
    assert (ended.returncode, ended.stderr) == (0, "")
    (spans,) = ExportTraceServiceRequest.FromString(bodies["/v1/traces"][0]).resource_spans
    resource = plain(iter(spans.resource.attributes))
    assert (resource["service.name"], resource["service.version"]) == ("binder", VERSION)
    (sent,) = spans.scope_spans[0].spans
    assert plain(iter(sent.attributes)) == {"pod": "uid-1"}
    exported = ExportMetricsServiceRequest.FromString(bodies["/v1/metrics"][-1])
    metrics = {
        metric.name: metric for metric in exported.resource_metrics[0].scope_metrics[0].metrics
    }
    (lost,) = metrics["topolog_log_lines_lost"].sum.data_points
    assert lost.as_int == 3
    (latency,) = metrics["topolog_queued_to_bound"].histogram.data_points
    assert (latency.count, latency.sum) == (3, 99.5)
    assert sum(latency.bucket_counts) == 3
    assert len(latency.bucket_counts) == len(latency.explicit_bounds) + 1
    assert latency.bucket_counts[-1] == 1
    assert [(exemplar.trace_id.hex(), exemplar.as_double) for exemplar in latency.exemplars] == [
        (TRACE_ID, 0.3)
    ]
    assert not latency.HasField("min")


def test_a_collector_that_is_away_stops_no_service() -> None:
    ended = run({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"})
    assert ended.returncode == 0
    assert 0 < len(ended.stderr.splitlines()) < 20, "the failure is logged, in few lines"
    assert "Traceback" not in ended.stderr


def test_a_protocol_that_is_not_spoken_is_a_settings_error() -> None:
    ended = run(
        {
            "OTEL_EXPORTER_OTLP_ENDPOINT": ENDPOINT,
            "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
            "TOPOLOG_DATABASE_URL": "postgresql://nowhere/x",
        },
        "import runpy; runpy.run_module('services.binder', run_name='__main__')",
    )
    assert ended.returncode == Exit.SETTINGS
    assert "OTEL_EXPORTER_OTLP_PROTOCOL='grpc': Topolog exports by http/protobuf" in ended.stderr


@pytest.mark.parametrize(
    ("variables", "asked"),
    [
        ({}, Collector()),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": " "}, Collector()),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": ENDPOINT}, Collector(traces=True, metrics=True)),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": ENDPOINT}, Collector(metrics=True)),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, Collector(traces=True)),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": ENDPOINT, "OTEL_METRICS_EXPORTER": "none"},
            Collector(traces=True),
        ),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": ENDPOINT, "OTEL_SDK_DISABLED": "True"},
            Collector(),
        ),
        (
            {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_TRACES_SAMPLER": "always_on"},
            Collector(traces=True, sampler_is_set=True),
        ),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, Collector()),
    ],
)
def test_the_standard_variables_choose_the_signals(
    variables: dict[str, str], asked: Collector
) -> None:
    assert collector(variables) == asked
