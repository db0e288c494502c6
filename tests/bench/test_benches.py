"""Every bench parses its arguments, and the benches that need no cluster run to their end."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench import cycle, devices, gangs
from tests.bench.__main__ import names
from tests.bench._cycle_pods import SPECS

ROOT = Path(__file__).parents[2]
# With arguments so small that a run takes at most 5 s. The other benches start more servers, or a
# whole cluster; what they use of the code is checked by mypy.
SMALL = {
    "alignment": (
        *("--policy", "best-effort", "--zones", "2", "--load", "light"),
        *("--nodes", "4", "--horizon", "20", "--off"),
    ),
    "admission": ("--zones", "1", "--seconds", "0.01"),
    "completeness": ("--scenes", "3"),
    "cycle": (
        *("--nodes", "20", "--zones", "2", "--shapes", "2", "--decisions", "20", "--no-growth"),
    ),
    "durable": ("--nodes", "8", "--zones", "2", "--pods", "20"),
    "large": (
        *("--nodes", "4", "--live", "8", "--rate", "10", "--seconds", "1", "--every", "0.5"),
        *("--reports", "0.5"),
    ),
    "late": ("--nodes", "8", "--seconds", "20", "--reports", "10"),
    "life": ("--days", "0.0005", "--nodes", "4", "--partition", "1000", "--explained", "1"),
    "lists": ("--pods", "50"),
    "preemption": ("--scenes", "3"),
    "recovery": ("--events", "2800"),
    "sharing": ("--schedulers", "1", "--nodes", "8", "--zones", "2", "--pods", "20"),
    "reports": ("--nodes", "20"),
    "simapi": ("--pods", "20", "--watchers", "1", "--workers", "2", "--json"),
    "whatif": ("--pods", "40", "--nodes", "4"),
}


@pytest.mark.parametrize("name", names())
def test_a_bench_explains_its_arguments(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(f"tests.bench.{name}").main(["--help"])
    assert ended.value.code == 0
    assert "usage:" in capsys.readouterr().out


def test_decisions_are_measured_by_kind_of_pod(capsys: pytest.CaptureFixture[str]) -> None:
    few = ("--nodes", "20", "--zones", "2", "--shapes", "2", "--decisions", "20", "--no-growth")
    cycle.main([*few, "--pods", ",".join(SPECS)])
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["pods"] for row in rows] == [*SPECS]
    # A pod of each kind is placed, so that the figures do not concern refusals only.
    assert all(row["placed"] for row in rows if row["pods"] != "preempting"), rows
    assert rows[-1]["placed"] == 0, "urgent pods preempt"


def test_jobs_start_as_gangs_on_nodes_that_have_several_of_their_pods() -> None:
    """The row's log takes a commit with several events on one node's stream."""
    played = gangs.play("topolog", True, seed=1, horizon_s=40, load=0.5)
    assert played["started"]
    assert played["idle_cpu_h"] == pytest.approx(0, abs=0.05)
    assert played["rejected"] == 0


def test_devices_that_topolog_chooses_lie_nearer_than_those_of_a_kubelet() -> None:
    chosen, counted = (devices.play("topolog", way, 1, 200.0, 0.8) for way in (True, False))
    assert chosen["started"] == chosen["pods"] == counted["started"]
    assert chosen["near"] > counted["near"]


@pytest.mark.parametrize("name", SMALL)
def test_a_small_run_prints_figures(name: str) -> None:
    command = [sys.executable, "-m", "tests.bench", name, *SMALL[name]]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert any(
        isinstance(json.loads(line), dict) for line in run.stdout.splitlines() if line[0] == "{"
    )
