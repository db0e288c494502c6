"""Secrets do not reach a log line. A trace goes from a message through an event to the next
process, and into a bounded file.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SpanExportResult

from shared.eventlog.errors import LogUnavailable
from shared.eventlog.postgres import PostgresEventLog
from shared.telemetry import logs, names
from shared.telemetry.propagation import from_headers, parse, text_of
from shared.telemetry.trace_file import FileSpanExporter

ROOT = Path(__file__).resolve().parents[2]
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_lines_are_json_with_their_keys_and_without_secrets(
    capsys: pytest.CaptureFixture[str],
) -> None:
    logs.configure("scheduler", "json")
    with logs.bound(pod="uid-1", node="n", position=7):
        logs.get("part").info(
            names.STARTED,
            url="postgresql://me:hunter2@db/x",
            password="hunter2",
            nested={"api_token": "hunter2", "ok": [1]},
        )
    line = json.loads(capsys.readouterr().err)
    assert line["event"] == names.STARTED
    assert (line["service"], line["component"], line["pod"], line["node"], line["position"]) == (
        "scheduler",
        "part",
        "uid-1",
        "n",
        7,
    )
    assert line["nested"] == {"api_token": "***", "ok": [1]}
    assert line["url"] == "postgresql://***@db/x"
    assert "hunter2" not in str(line)


def test_exceptions_and_foreign_loggers_are_scrubbed_too(
    capsys: pytest.CaptureFixture[str],
) -> None:
    logs.configure("scheduler", "json")
    try:
        raise OSError("nats://me:hunter2@bus refused; Authorization: Bearer abcdef123456")
    except OSError as error:
        logs.get("part").error(names.TASK_FAILED, exc_info=error)
    logging.getLogger("uvicorn.error").warning("postgresql://me:hunter2@db is away")
    text = capsys.readouterr().err
    assert "hunter2" not in text
    assert "abcdef123456" not in text
    assert [json.loads(line)["level"] for line in text.splitlines()] == ["error", "warning"]


async def test_a_retry_says_which_server_does_not_answer_and_why(
    capsys: pytest.CaptureFixture[str],
) -> None:
    logs.configure("scheduler", "json")
    with pytest.raises(LogUnavailable):
        await PostgresEventLog.open(
            "postgresql+asyncpg://me:hunter2@no-such-host.invalid/topolog", retry_for_s=0.3
        )
    first = json.loads(capsys.readouterr().err.splitlines()[0])
    assert first["event"] == names.RETRYING
    assert first["problem"].startswith(
        "Postgres at postgresql+asyncpg://no-such-host.invalid/topolog does not answer "
        "(the host name is not known)"
    )


def test_a_full_disk_behind_standard_error_ends_no_service() -> None:
    """/dev/full stands for the full disk of a service's log."""
    code = (
        "from shared.telemetry import logs; logs.configure('scheduler'); "
        "logs.get('part').warning('bus.down'); print(1)"
    )
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, stderr=full, check=False
        )
    assert ended.stdout == b"1\n"


def test_a_console_line_is_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("scheduler", "console")
    logs.get("part").warning(names.BUS_DOWN, servers=["nats://me:hunter2@bus"])
    text = capsys.readouterr().err
    assert "bus.disconnected" in text
    assert "hunter2" not in text


def test_lines_below_the_level_are_not_written(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("scheduler", "json", "warning")
    logs.get("part").info(names.STARTED)
    assert capsys.readouterr().err == ""


def test_a_traceparent_is_read_and_written_back() -> None:
    context = parse(PARENT)
    assert context is not None
    assert text_of(context) == PARENT
    assert from_headers({"traceparent": PARENT}) == PARENT


@given(st.text(max_size=70))
def test_a_malformed_traceparent_is_no_parent(text: str) -> None:
    assert from_headers({"traceparent": text}) == ""


@pytest.mark.parametrize(
    "text", [PARENT.upper(), "00-" + "0" * 32 + "-b7ad6b7169203331-01", PARENT + "\n", PARENT[:-1]]
)
def test_nearly_right_traceparents_are_no_parents(text: str) -> None:
    assert from_headers({"traceparent": text}) == ""


OUTER = "test.outer"
CHILD = """
import sys
from shared.telemetry import names
from shared.telemetry.propagation import current, headers, span
from shared.telemetry.setup import TelemetrySettings, set_up

settings = TelemetrySettings(trace_file=sys.argv[1], trace_ratio=float(sys.argv[2]))
telemetry = set_up("child", settings)
with span("test.outer", sys.argv[3], position=7):
    with span(names.SPAN_APPEND):
        assert headers() == ({"traceparent": current()} if current() else {})
        print(current())
telemetry.flush()
"""


def child(file: str, ratio: float, parent: str) -> str:
    command = [sys.executable, "-c", CHILD, file, str(ratio), parent]
    return subprocess.run(
        command, cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()


def test_spans_of_a_sampled_parent_are_written_and_carry_its_trace(tmp_path: Path) -> None:
    traceparent = child(str(tmp_path / "spans"), 0.0, PARENT)
    spans = {
        span["name"]: span
        for span in map(json.loads, (tmp_path / "spans").read_text().splitlines())
    }
    assert spans[OUTER]["parent"] == PARENT.split("-")[2]
    assert spans[names.SPAN_APPEND]["parent"] == spans[OUTER]["span"]
    assert traceparent == f"00-{PARENT.split('-')[1]}-{spans[names.SPAN_APPEND]['span']}-01"
    assert spans[OUTER]["attributes"] == {"position": 7}


def test_a_trace_that_is_not_sampled_is_not_written_and_still_has_an_id(tmp_path: Path) -> None:
    traceparent = child(str(tmp_path / "spans"), 0.0, "")
    assert parse(traceparent) is not None
    assert int(traceparent[-2:], 16) & 1 == 0
    assert not (tmp_path / "spans").exists()


def test_a_parent_that_is_not_sampled_is_handed_on(tmp_path: Path) -> None:
    assert child(str(tmp_path / "spans"), 1.0, UNSAMPLED) == UNSAMPLED
    assert not (tmp_path / "spans").exists()


def test_below_an_unrecorded_trace_no_new_one_begins(tmp_path: Path) -> None:
    assert child(str(tmp_path / "spans"), 1.0, "-").endswith("-00")
    assert not (tmp_path / "spans").exists()


def test_without_a_file_a_trace_is_handed_on_unchanged() -> None:
    assert child("", 1.0, PARENT) == PARENT
    assert child("", 1.0, "") == ""


def test_a_recorded_share_of_new_traces_is_written(tmp_path: Path) -> None:
    traceparent = child(str(tmp_path / "spans"), 1.0, "")
    spans = {
        span["name"]: span
        for span in map(json.loads, (tmp_path / "spans").read_text().splitlines())
    }
    assert spans[OUTER]["parent"] == ""
    assert traceparent.startswith(f"00-{spans[OUTER]['trace']}-{spans[names.SPAN_APPEND]['span']}-")


SHORT = """
import sys
from shared.telemetry import names
from shared.telemetry.propagation import trace_of
from shared.telemetry.setup import TelemetrySettings, set_up

settings = TelemetrySettings(trace_file=sys.argv[1], trace_ratio=float(sys.argv[2]))
telemetry = set_up("child", settings)
print(trace_of(names.SPAN_APPEND, sys.argv[3]))
telemetry.flush()
"""
UNSAMPLED = PARENT[:-2] + "00"


@pytest.mark.parametrize(
    ("ratio", "parent", "written"),
    [
        (0.0, PARENT, True),
        (1.0, "", True),
        (0.0, "", False),
        (1.0, UNSAMPLED, False),
        (1.0, "-", False),
    ],
)
def test_what_a_event_carries_on_is_its_own_span_where_the_trace_is_recorded(
    tmp_path: Path, ratio: float, parent: str, written: bool
) -> None:
    file = tmp_path / "spans"
    command = [sys.executable, "-c", SHORT, str(file), str(ratio), parent]
    carried = subprocess.run(
        command, cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()
    assert file.exists() == written
    if not written:
        assert carried == "-"
        return
    context = parse(carried)
    assert context is not None
    assert context.trace_flags.sampled
    assert json.loads(file.read_text())["span"] == carried.split("-")[2]
    if parent:
        assert carried.split("-")[1] == parent.split("-")[1]


def test_the_span_file_is_bounded(tmp_path: Path) -> None:
    exporter = FileSpanExporter(tmp_path / "spans", 2_000)
    tracer = TracerProvider().get_tracer("t")
    for _ in range(50):
        span = tracer.start_span("s")
        span.end()
        assert exporter.export([span]) is SpanExportResult.SUCCESS  # type: ignore[list-item]
    sizes = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    assert sorted(sizes) == ["spans", "spans.1"]
    assert max(sizes.values()) <= 2_000


def test_a_span_file_that_cannot_be_written_stops_no_service(tmp_path: Path) -> None:
    span = TracerProvider().get_tracer("t").start_span("s")
    span.end()
    exporter = FileSpanExporter(tmp_path / "absent" / "spans", 10)
    assert exporter.export([span]) is SpanExportResult.FAILURE  # type: ignore[list-item]
