"""`make up` installs only what Topolog needs at run time (issue 42, E)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def commands(target: str) -> str:
    """Return the commands that `make TARGET` would run in a new checkout."""
    done = subprocess.run(
        ["make", "-n", "-B", target], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_make_up_installs_no_development_tools() -> None:
    text = commands("up")
    assert "-r .venv/runtime.lock" in text
    assert "-r requirements.lock" not in text
    assert "--quiet" not in text, "progress is visible from the first second"
    lock = subprocess.run(
        [sys.executable, "scripts/runtime_lock.py", "."],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for tool in ("mypy", "pytest", "ruff", "hypothesis", "matplotlib", "grpcio-tools"):
        assert f"\n{tool}==" not in lock


@pytest.mark.parametrize("target", ["test", "lint"])
def test_other_targets_install_the_development_tools(target: str) -> None:
    assert "-r .venv/dev.lock" in commands(target)
