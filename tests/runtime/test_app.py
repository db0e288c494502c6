"""The skeleton of a service, as real processes: health, drain, exit codes, secrets."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from shared.runtime.app import Exit


class Running:
    """A running tiny service."""

    def __init__(self, process: subprocess.Popen[str], started: dict[str, Any]) -> None:
        self.process = process
        self.started = started

    def get(self, path: str) -> tuple[int, str]:
        """Return status and body."""
        try:
            with urllib.request.urlopen(self.started["url"] + path, timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as refusal:
            return refusal.code, refusal.read().decode()

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str, str]:
        """Stop the process. Return exit code, standard output, and log lines since the start."""
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, out, err


def spawn(**environment: str) -> subprocess.Popen[str]:
    settings = {f"TOPOLOG_{key.upper()}": value for key, value in environment.items()}
    return subprocess.Popen(
        [sys.executable, "-m", "tests.runtime.tiny_service"],
        env={**os.environ, **settings},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@contextmanager
def running(**environment: str) -> Iterator[Running]:
    process = spawn(**environment)
    try:
        assert process.stderr is not None
        line: dict[str, Any] = {}
        while line.get("event") != "service.started":
            line = json.loads(process.stderr.readline())
        yield Running(process, line)
    finally:
        process.kill()
        process.communicate()


def test_a_service_answers_drains_on_a_signal_and_exits_clean() -> None:
    with running(size="7") as service:
        assert service.get("/hello") == (200, '{"hello":7}')
        assert (
            service.get("/livez")[0]
            == service.get("/healthz")[0]
            == service.get("/readyz")[0]
            == 200
        )
        status, metrics = service.get("/metrics")
        assert status == 200
        assert 'topolog_task_running{task="work"} 1.0' in metrics
        code, out, err = service.stop()
    assert (code, out.split()) == (Exit.CLEAN, ["drained", "closed"])
    assert "service.stopped" in err


def test_an_interrupt_from_the_keyboard_drains_too() -> None:
    with running() as service:
        assert service.stop(signal.SIGINT)[:2] == (Exit.CLEAN, "drained\nclosed\n")


def test_a_task_that_does_not_end_is_abandoned_after_the_grace() -> None:
    with running(mode="stuck", drain_grace_s="0.2") as service:
        code, out, err = service.stop()
    assert (code, out) == (Exit.CLEAN, "closed\n")
    assert "service.drain_exceeded" in err


def test_a_red_component_turns_health_red_and_the_service_lives() -> None:
    with running(mode="red") as service:
        assert service.get("/livez")[0] == 200
        status, body = service.get("/healthz")
        assert status == 503
        assert json.loads(body)["red"] == {"consumer ledger": "fact 7 cannot be read"}
        assert service.get("/readyz")[0] == 503


@pytest.mark.parametrize(
    ("mode", "code"),
    [("fail", Exit.FAILED), ("fenced", Exit.FENCED), ("unreachable", Exit.UNREACHABLE)],
)
def test_the_exit_code_says_why_it_ended(mode: str, code: Exit) -> None:
    process = spawn(mode=mode)
    _, err = process.communicate(timeout=60)
    assert process.returncode == code
    assert "task.failed" in err
    assert "hunter2" not in err


def test_wrong_settings_are_all_listed_and_nothing_starts() -> None:
    process = spawn(size="many", http_port="99999", database_url="postgresql://me:hunter2@h/x")
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (Exit.SETTINGS, "")
    assert "TOPOLOG_SIZE" in err
    assert "TOPOLOG_HTTP_PORT" in err
    assert "hunter2" not in err


def test_a_database_of_another_kind_is_named_with_the_other_errors_and_its_url_is_not_shown() -> (
    None
):
    process = spawn(database_url="sqlite://me:hunter2@h/x", http_port="99999")
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (Exit.SETTINGS, "")
    assert "2 invalid setting(s)" in err
    assert "TOPOLOG_DATABASE_URL" in err
    assert "give postgresql://USER:PASSWORD@HOST/DATABASE" in err
    assert "hunter2" not in err


def test_started_shows_settings_without_secrets() -> None:
    with running(database_url="postgresql://me:hunter2@h/x") as service:
        assert service.started["settings"]["database_url"] == "***"
        assert "hunter2" not in str(service.started)


def test_an_occupied_port_ends_the_service() -> None:
    with running() as first:
        port = first.started["url"].rpartition(":")[2]
        second = spawn(http_port=port)
        _, err = second.communicate(timeout=60)
    assert second.returncode == Exit.FAILED
    assert "in use" in err
