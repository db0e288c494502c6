"""Releases with other fold code on a kept log, each a copy of the sources with one changed line, in
a process of its own.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from shared.eventlog import postgres_care as care
from shared.eventlog.history_file import Header
from shared.eventlog.migrate import upgrade
from shared.runtime.checkpointing import DOUBLINGS_IN_REPLAY
from tests.bench._history import History

ROOT = Path(__file__).parents[2]
# Positions between two checkpoints of a replay.
DISTANCE, PODS = 500, 200
RELEASE = """
import asyncio, json, sys
import msgspec
from services.scheduler.core import CoreConfig
from services.scheduler.handlers import fold_of
from shared.domain.state_hash import state_hash
from shared.eventlog.postgres import PostgresEventLog
from shared.runtime import checkpointing
from shared.runtime import projector as projectors

checkpointing.EVERY = projectors.EVERY = int(sys.argv[2])

async def main():
    log, fold, positions = await PostgresEventLog.open(sys.argv[1]), fold_of(CoreConfig()), []
    def evolve(state, envelope, event):
        positions.append(envelope.position)
        return fold.evolve(state, envelope, event)
    counted = msgspec.structs.replace(fold, evolve=evolve)
    projector = projectors.Projector("scheduler", log, counted)
    run = asyncio.create_task(projector.run())
    await projector.wait_live()
    run.cancel()
    state = state_hash(projector.state.folded)
    print(json.dumps([fold.fingerprint, positions, state]))
    await log.close()

asyncio.run(main())
"""
SAME = "shared/ledger/fold.py", "\n", "\n# Another release.\n"
OTHERWISE = (
    "services/scheduler/state/state.py",
    "folded.versions[envelope.stream] = envelope.version\n",
    "folded.versions[envelope.stream] = envelope.version + 1\n",
)


def released(folder: Path, change: tuple[str, str, str] | None) -> Path:
    """Copy the sources of a release into the folder, with one text replaced where it is first."""
    for package in ("services", "shared", "plugins", "migrations"):
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__py*"))
    if change is not None:
        name, old, new = change
        source = (folder / name).read_text(encoding="utf-8")
        assert old in source
        (folder / name).write_text(source.replace(old, new, 1), encoding="utf-8")
    return folder


def run(release: Path, url: str) -> tuple[str, list[int], str]:
    """Start the release's scheduler on the log. Return its code, the positions that it folded, and
    the hash of its state."""
    command = [sys.executable, "-c", RELEASE, url, str(DISTANCE >> DOUBLINGS_IN_REPLAY)]
    done = subprocess.run(
        command,
        cwd=release,
        env=os.environ | {"PYTHONPATH": str(release), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    code, positions, state = json.loads(done.stdout.splitlines()[-1])
    return code, positions, state


@pytest.fixture
async def kept_log(database_url: str) -> tuple[str, int]:
    """Return the URL of a log, and its head."""
    await upgrade(database_url)
    history = History(4, 10.0)
    head = history.events(PODS)
    header = Header(log_id="kept", timeline=1, first=1, last=head)
    nothing: Any = lambda _identity: []  # noqa: E731
    await care.take_in(database_url, header, history.blocks(PODS), nothing)
    return database_url, head


async def test_a_release_starts_from_a_checkpoint_only_if_it_folds_the_sample_alike(
    kept_log: tuple[str, int], tmp_path: Path
) -> None:
    url, head = kept_log
    newest = head // DISTANCE * DISTANCE
    first = run(released(tmp_path / "first", None), url)
    assert first[1] == [*range(1, head + 1)]
    same = run(released(tmp_path / "same", SAME), url)
    assert same[0] != first[0]
    assert same[1] == [*range(newest - DISTANCE + 1, head + 1)], "the sample, and what follows"
    assert same[2] == first[2]
    otherwise = run(released(tmp_path / "otherwise", OTHERWISE), url)
    sample = [*range(newest - DISTANCE + 1, newest + 1)]
    assert otherwise[1] == [*sample, *range(1, head + 1)], "a state of its own, from the beginning"
    assert otherwise[2] != first[2]
