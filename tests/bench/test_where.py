"""The samples behind the page about a pod's CPU time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench._where import RULES, SAMPLING, cause, where

ROOT = Path(__file__).resolve().parents[2]
BUSY = """
import sys, time
def busy():
    while time.process_time() < 0.3: pass
busy()
"""


def test_a_process_reports_what_its_cpu_time_went_into(tmp_path: Path) -> None:
    samples = tmp_path / "samples"
    samples.mkdir()
    environment = {**os.environ, "TOPOLOG_SAMPLES": str(samples), "PYTHONPATH": str(SAMPLING)}
    (tmp_path / "busy.py").write_text(BUSY)
    command = [sys.executable, str(tmp_path / "busy.py"), "services.binder"]
    subprocess.run(command, env=environment, cwd=ROOT, check=True, timeout=60)
    seconds = dict[str, float]()
    for name, what, ms in where(samples, 0.0, float("inf"), {"binder": 2.0}):
        assert name == "binder"
        seconds[what] = ms
    assert sum(seconds.values()) == pytest.approx(2.0, abs=0.01)
    assert seconds["event loop, sockets"] > 1.0
    assert list(where(samples, 0.0, 0.0, {"binder": 2.0})) == []


def test_the_first_rule_that_matches_a_function_counts() -> None:
    appending = (
        "asyncio/runners.py:run;services/binder/handlers.py:_settle;"
        "shared/eventlog/postgres_append.py:append"
    )
    assert (cause(appending), cause("asyncio/runners.py:run")) == ("appends", "event loop, sockets")


def test_every_rule_names_code_that_is_there() -> None:
    ours = [path for room in ("services", "shared") for path in (ROOT / room).rglob("*.py")]
    for _, functions in RULES:
        for named in functions:
            file, _, function = named.partition(":")
            existing = (
                [path for path in ours if file in str(path)]
                if "/" in file or file.endswith(".py")
                else []
            )
            theirs = not existing and (not file or file in ("nats/", "importlib"))
            assert theirs or any(f"def {function}" in path.read_text() for path in existing), named
