"""An import is all or nothing: no reader ever sees a full log on the timeline of its original."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from services.upkeep import importing
from services.upkeep.errors import UpkeepRefused
from services.upkeep.exporting import export
from services.upkeep.importing import import_history
from shared.eventlog.errors import LogNotMigrated
from shared.eventlog.memory import MemoryEventLog
from shared.eventlog.migrate import upgrade
from shared.eventlog.port import Commit, Draft, Fenced, LogIdentity
from shared.eventlog.postgres import PostgresEventLog
from shared.eventlog.postgres_connection import connect
from shared.eventlog.revisions import require_current
from shared.events.codec import decode
from shared.events.log_events import LogOpened
from tests.eventlog.test_life import events, everything

EPOCH = 7


@pytest.fixture
async def file(tmp_path: Path) -> Path:
    """Return a history that a role with an epoch wrote."""
    log = MemoryEventLog("log-1")
    for number, drafts in enumerate(events()):
        await log.append(
            [
                Commit(
                    f"c{number}", "leader", EPOCH, number, tuple(Draft(*draft) for draft in drafts)
                )
            ]
        )
    await export(log, tmp_path / "x.topolog.gz", 1, await log.head())
    return tmp_path / "x.topolog.gz"


async def seen(url: str) -> tuple[int, int]:
    """Return the timeline and the head that a follower of the log sees."""
    log = await PostgresEventLog.open(url)
    try:
        return (await log.identity()).timeline, await log.head()
    finally:
        await log.close()


async def imported(url: str, file: Path, **environment: str) -> int:
    process = await asyncio.create_subprocess_exec(
        *(
            sys.executable,
            "-m",
            "services.cli.main",
            "log",
            "import",
            str(file),
            "--database-url",
            url,
        ),
        env=os.environ | environment,
        stdout=asyncio.subprocess.DEVNULL,
    )
    return await process.wait()


async def test_killed_when_all_events_are_in_it_leaves_the_log_empty_and_the_same_again_imports(
    database_url: str, file: Path
) -> None:
    assert await imported(database_url, file, TOPOLOG_CRASH_AT="import.filled") == -signal.SIGKILL
    assert await seen(database_url) == (1, 0)
    assert await imported(database_url, file) == 0
    log = await PostgresEventLog.open(database_url)
    rows = await everything(log)
    assert decode(rows[-1]) == LogOpened("log-1", 2)
    assert await log.identity() == LogIdentity("log-1", 2)
    (outcome,) = await log.append([Commit("late", "leader", EPOCH, 1, (Draft(*events()[0][0]),))])
    assert isinstance(outcome, Fenced)
    await log.close()


async def test_events_and_the_new_timeline_come_into_sight_together(
    database_url: str, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await upgrade(database_url)
    watched: list[tuple[int, int]] = []
    real = importing._blocks

    def blocks(*arguments: object) -> object:
        yield from real(*arguments)  # type: ignore[arg-type]
        watched.append(_in_a_thread(database_url))

    monkeypatch.setattr(importing, "_blocks", blocks)
    monkeypatch.setattr(
        importing, "crash_point", lambda _: watched.append(_in_a_thread(database_url))
    )
    done = await import_history(database_url, file, 1)
    assert watched == [(1, 0), (1, 0)]
    assert await seen(database_url) == (2, done.last + 1)


def _in_a_thread(url: str) -> tuple[int, int]:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: asyncio.run(seen(url))).result()


@pytest.mark.parametrize("revision", ["0003_orders", "9f2b1c7d04ab"])
async def test_a_database_of_another_program_is_named_as_such(
    database_url: str, file: Path, revision: str
) -> None:
    """Many programs keep their schema's revision in Alembic's table."""
    owner = await connect(database_url)
    await owner.execute(
        "CREATE TABLE alembic_version (version_num text); INSERT INTO alembic_version "
        f"VALUES ('{revision}')"
    )
    with pytest.raises(LogNotMigrated, match="another program"):
        await require_current(owner)
    with pytest.raises(UpkeepRefused, match="another program"):
        await import_history(database_url, file, 1)
    assert await owner.fetchval("SELECT to_regclass('public.fact')") is None
    await owner.close()
