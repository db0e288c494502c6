"""Planting a mutation in a scratch copy, asking its catcher, and saying what came of it."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Literal

from tests.mutations.table import Mutation

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("services", "shared", "migrations", "tests")
FILES = ("pyproject.toml", "alembic.ini")
PYTEST_FAILED = 1
TIMEOUT_S = 900

Verdict = Literal["caught", "survived", "stale", "unclear"]


def copy_to(folder: Path) -> None:
    """The project as far as its tests need it."""
    ignore = shutil.ignore_patterns("__pycache__", ".*")
    for name in FOLDERS:
        shutil.copytree(ROOT / name, folder / name, ignore=ignore)
    for name in FILES:
        shutil.copy(ROOT / name, folder / name)


def is_stale(mutation: Mutation, root: Path = ROOT) -> bool:
    """Whether the code has moved on from what the table says of it."""
    return (root / mutation.file).read_text().count(mutation.old) != 1


def try_one(mutation: Mutation, folder: Path, seeds: str = "") -> tuple[Verdict, str]:
    """Plant, ask, take back. With `seeds` the simulation is asked. Returns the verdict and the last words of the catcher."""
    path = folder / mutation.file
    if is_stale(mutation, folder):
        return "stale", "the code is no longer what the table says"
    original = path.read_text()
    path.write_text(original.replace(mutation.old, mutation.new))
    try:
        return _simulated(mutation, folder, seeds) if seeds else _tested(mutation, folder)
    finally:
        path.write_text(original)


def _tested(mutation: Mutation, folder: Path) -> tuple[Verdict, str]:
    code, words = _run(["-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *shlex.split(mutation.catcher)], folder)
    if code == 0:
        return "survived", words
    return ("caught" if code == PYTEST_FAILED else "unclear"), words


def _simulated(mutation: Mutation, folder: Path, seeds: str) -> tuple[Verdict, str]:
    """Only the checker that is meant for the bug counts; another one's word is shown."""
    code, words = _run(["-m", "tests.simulation", "--seeds", seeds], folder, first=True)
    if code == 0:
        return "survived", words
    return ("caught" if any(f" {name}" in words for name in mutation.catcher.split("|")) else "unclear"), words


def _run(arguments: list[str], folder: Path, first: bool = False) -> tuple[int, str]:
    """Exit code, and one line of what was said: the first that names a failing seed, or the last."""
    try:
        ended = subprocess.run(
            [sys.executable, *arguments], cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return PYTEST_FAILED, f"did not end within {TIMEOUT_S} s"
    lines = [line for line in ended.stdout.splitlines() if line.strip()] or ended.stderr.splitlines()[-1:] or [""]
    found = next((line for line in lines if line.startswith("seed ")), lines[-1]) if first else lines[-1]
    return ended.returncode, found[:160]
