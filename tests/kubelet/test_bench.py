"""The bench dispatcher finds its benches, and the admission bench prints its figures."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.bench.__main__ import main, names


def test_the_admission_bench_prints_a_line_for_each_number_of_zones() -> None:
    command = [
        sys.executable,
        "-m",
        "tests.bench",
        "admission",
        "--zones",
        "1",
        "2",
        "--seconds",
        "0.01",
    ]
    lines = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=120
    ).stdout.splitlines()
    assert [json.loads(line)["zones"] for line in lines] == [1, 2]
    assert all(json.loads(line)["pod_ms"] > 0 for line in lines)


def test_an_unknown_bench_is_answered_with_the_known_ones() -> None:
    assert "admission" in names()
    with pytest.raises(SystemExit, match=r"no bench is called 'speed'.*admission"):
        main(["speed"])
