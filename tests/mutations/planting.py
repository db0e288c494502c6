"""Plants a mutation in a scratch copy, runs its catcher, and returns the verdict."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from subprocess import PIPE
from typing import Literal

from tests.mutations.table import Mutation
from tests.simulation.__main__ import said_by

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("services", "shared", "plugins", "migrations", "tests")
FILES = ("pyproject.toml", "alembic.ini")
PYTEST_FAILED = 1
TIMEOUT_S = 3600
STOPPED_WITHIN_S = 10

Verdict = Literal["caught", "survived", "stale", "unclear", "timed out"]


def copy_to(folder: Path) -> None:
    """Copy the parts of the project that its tests need."""
    ignore = shutil.ignore_patterns("__pycache__", ".*")
    for name in FOLDERS:
        shutil.copytree(ROOT / name, folder / name, ignore=ignore)
    for name in FILES:
        shutil.copy(ROOT / name, folder / name)


def is_stale(mutation: Mutation, root: Path = ROOT) -> bool:
    """Return whether the code no longer has the lines that the table names."""
    return (root / mutation.file).read_text().count(mutation.old) != 1


def try_one(
    mutation: Mutation, folder: Path, seeds: str = "", timeout_s: float = TIMEOUT_S
) -> tuple[Verdict, str]:
    """Plant the bug, run its catcher, and restore the file. Return the verdict and the last
    words of the catcher. With `seeds` the simulation is the catcher.
    """
    path = folder / mutation.file
    if is_stale(mutation, folder):
        return "stale", "the code is no longer what the table says"
    original = path.read_text()
    path.write_text(original.replace(mutation.old, mutation.new))
    try:
        return (
            _simulated(mutation, folder, seeds, timeout_s)
            if seeds
            else _tested(mutation, folder, timeout_s)
        )
    except subprocess.TimeoutExpired:
        return "timed out", f"did not end within {timeout_s:.0f} s"
    finally:
        path.write_text(original)


def _tested(mutation: Mutation, folder: Path, timeout_s: float) -> tuple[Verdict, str]:
    code, lines = _run(
        ["-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *shlex.split(mutation.catcher)],
        folder,
        timeout_s,
    )
    words = lines[-1][:160]
    if code == 0:
        return "survived", words
    return ("caught" if code == PYTEST_FAILED else "unclear"), words


def _simulated(
    mutation: Mutation, folder: Path, seeds: str, timeout_s: float
) -> tuple[Verdict, str]:
    """Return "caught" only if the checker that is meant for the bug failed; the text names its
    first seed and the number of other failures.
    """
    seeds = f"{mutation.seed},{seeds}" if mutation.seed >= 0 else seeds
    code, lines = _run(
        ["-m", "tests.simulation", "--seeds", seeds, "--until", mutation.catcher], folder, timeout_s
    )
    stories = [line for line in lines if line.startswith("seed ")]
    if code == 0:
        return "survived", f"no checker spoke in seeds {seeds}"
    if not stories or not said_by(mutation.catcher, stories[-1]):
        return (
            "unclear",
            (
                f"{len(stories)} seeds broken, none by {mutation.catcher}: "
                f"{(stories or lines)[-1][:160]}"
            ),
        )
    return "caught", f"{stories[-1][:160]} ({len(stories) - 1} seeds broken before it by others)"


def _run(arguments: list[str], folder: Path, timeout_s: float) -> tuple[int, list[str]]:
    """Return the exit code and the lines of output. The floor of covered branches applies to
    whole test runs only.
    """
    env = {name: value for name, value in os.environ.items() if name != "MEASURE_BRANCHES"}
    # A planted line may be as long as the original, and bytecode of the same second would hide it.
    env["PYTHONDONTWRITEBYTECODE"] = "1"
    command = [sys.executable, *arguments]
    with subprocess.Popen(
        command, cwd=folder, env=env, stdout=PIPE, stderr=PIPE, text=True
    ) as process:
        try:
            output, errors = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)  # so that pytest stops the servers of its tests
            with suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=STOPPED_WITHIN_S)
            process.kill()
            raise
    said = [line for line in output.splitlines() if line.strip()]
    return process.returncode, said or errors.splitlines()[-1:] or [""]
