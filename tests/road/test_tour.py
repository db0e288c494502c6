"""Follow docs/tour.md as a reader does: every command is executed, and its output is compared with
the page.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.road.harness import ROOT, Road

TOUR = ROOT / "docs" / "tour.md"
BIN = Path(sys.executable).parent
COMMAND_LIMIT_S = 120
Step = tuple[str, list[str]]


def steps() -> list[Step]:
    """Return (command, expected lines) of every console block, in order."""
    steps_found: list[Step] = []
    for block in re.findall(r"```console\n(.*?)```", TOUR.read_text(), re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ "):
                steps_found.append((line[2:], []))
            elif line.strip():
                steps_found[-1][1].append(line)
    return steps_found


def missing(expected: list[str], printed: str) -> str:
    """Return the first missing expected line, or "". `…` matches anything, spaces match any number
    of them. Lines may be in any order, because a kubelet's status that a pod runs and the report
    that confirms it race.
    """
    lines = printed.splitlines()
    for wanted in expected:
        pattern = ".*".join(r"\s+".join(map(re.escape, part.split())) for part in wanted.split("…"))
        first_match = next((line for line in lines if re.search(pattern, line)), None)
        if first_match is None:
            return wanted
        lines.remove(first_match)
    return ""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A home folder in which `topolog up` of the tour runs."""
    home = tmp_path_factory.mktemp("tour")
    folder = home / ".local" / "state" / "topolog"
    folder.parent.mkdir(parents=True)
    road = Road(folder, "--nodes", "4", "--speed", "4")
    try:
        until_s = time.monotonic() + 150
        while not any(
            (line.get("status") or {}).get("workload", {}).get("created", 0) > 26
            for line in road.lines()
        ):
            assert road.process.poll() is None, road.output()
            assert time.monotonic() < until_s, road.output()
            time.sleep(0.5)
        yield home
    finally:
        road.stop()


@pytest.mark.timeout(600)
def test_every_command_prints_what_the_tour_shows(home: Path) -> None:
    env = {
        **os.environ,
        "HOME": str(home),
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "XDG_STATE_HOME": "",
    }
    wrong = []
    for command, expected in steps():
        if command.startswith("export "):
            name, _, value = command.removeprefix("export ").partition("=")
            env[name] = value.replace("~", str(home))
            continue
        if command.startswith("kubectl") and shutil.which("kubectl") is None:
            continue
        done = subprocess.run(
            command,
            shell=True,
            cwd=ROOT,
            env=env,
            capture_output=True,
            text=True,
            timeout=COMMAND_LIMIT_S,
            check=False,
        )
        printed = done.stdout + done.stderr
        if line := missing(expected, printed):
            wrong.append(f"$ {command}\n{printed[-1500:]}\nlacks: {line}")
    assert not wrong, "\n\n".join(wrong)


def test_the_tour_and_readme_show_commands_and_files_that_are_there() -> None:
    assert len(steps()) > 12
    text = TOUR.read_text() + (ROOT / "README.md").read_text()
    for path in re.findall(r"\]\(([^)#:]+)\)|(docs/examples/[\w.]+)", text):
        assert (ROOT / (path[0] or path[1])).exists(), path
