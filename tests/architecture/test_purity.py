"""Rooms are pure even if their modules are not listed: an impure import planted in one breaks the
contract.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"][
    "contracts"
]
PURE: dict[str, Any] = next(each for each in CONTRACTS if each["name"] == "pure code does no I/O")
NEVER_LISTED = (
    "services/scheduler/state/cluster_objects.py",
    "services/scheduler/state/totals.py",
    "services/scheduler/reserve/exclusions.py",
    "services/topology_store/moments.py",
    "services/exporter/checkpoints.py",
    "services/exporter/inventory.py",
)


def lint(folder: Path) -> str:
    code = (
        "import sys; from importlinter.cli import lint_imports; "
        "sys.exit(lint_imports(no_cache=True))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, 1), done.stderr
    return done.stdout


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    for room in ("services", "shared", "plugins"):
        shutil.copytree(ROOT / room, tmp_path / room, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "impure",
    [
        "import time",
        "import random",
        "from pathlib import Path",
        "from shared.telemetry import logs",
    ],
)
def test_an_impure_import_breaks_the_contract_wherever_it_is(impure: str, copied: Path) -> None:
    """In modules that no list names, and in a new one of each room."""
    added = [f"{room.replace('.', '/')}/brand_new.py" for room in PURE["source_modules"]]
    for path in (*NEVER_LISTED, *added):
        file = copied / path
        file.write_text((file.read_text() if file.exists() else "") + f"\n{impure}\n")
    output = lint(copied)
    for path in (*NEVER_LISTED, *added):
        assert re.search(rf"{path.removesuffix('.py').replace('/', '.')} -> ", output), (
            f"{path} may {impure}"
        )


def test_what_the_contract_lets_through_is_named_and_no_room() -> None:
    """Each exception is one module, or the one module of that name in every service."""
    shells = {each.split(" -> ")[0] for each in PURE["ignore_imports"]}
    for shell in shells - {"services.*.__main__", "services.*.settings"}:
        assert (ROOT / f"{shell.replace('.', '/')}.py").is_file(), shell
