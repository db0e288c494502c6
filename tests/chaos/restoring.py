"""Replace the log by an older one, so that the newest events are lost.

The operator restores a backup, as docs/backup.md says, or a replica, late or not, is promoted under
running services without a notice. Must not know how services recover.
"""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from services.embedded.binaries import find_postgres
from services.embedded.postgres import DATABASE, EmbeddedPostgres
from shared.eventlog.postgres_connection import plain_url
from tests.chaos import judging
from tests.chaos.looking import look
from tests.chaos.stage import Stage
from tests.road.harness import topolog

AGE_S = (1.0, 10.0)


class Way(NamedTuple):
    """A way to write a backup to a file, and to restore it into an empty database. Both functions
    get file and URL.
    """

    take: Callable[[Path, str], None]
    put_back: Callable[[Path, str], None]


async def restore(stage: Stage) -> str:
    """Take a backup, let pods come and go for a while, and replace the log by the backup."""
    name, age_s = stage.rng.choice(sorted(WAYS)), round(stage.rng.uniform(*AGE_S), 1)
    way, file = WAYS[name], _backup(stage)
    await asyncio.to_thread(way.take, file, stage.database_url)
    await asyncio.sleep(age_s)
    stage.broken += judging.of_the_workload(
        stage.road, (await look(stage.road, stage.database_url)).pods
    )
    await asyncio.to_thread(stage.road.stop)
    await asyncio.to_thread(_empty, stage.database)
    await asyncio.to_thread(way.put_back, file, stage.database_url)
    stage.road = await asyncio.to_thread(stage.start)
    return f"{name}, {age_s} s old"


async def promote(stage: Stage) -> str:
    """Stop the database, and start another one with its events, or with those of some seconds
    before.
    """
    age_s, file = stage.rng.choice((0.0, round(stage.rng.uniform(*AGE_S), 1))), _backup(stage)
    if age_s:
        await asyncio.to_thread(_dump, file, stage.database_url)
        await asyncio.sleep(age_s)
    stage.postgres.away = True
    stage.postgres.cut()
    if not age_s:
        await asyncio.to_thread(_dump, file, stage.database_url)
    await asyncio.to_thread(_empty, stage.database)
    await asyncio.to_thread(
        _tool, "pg_restore", "--dbname", plain_url(stage.database_url), str(file)
    )
    stage.postgres.away = False
    return f"{age_s} s behind"


def _backup(stage: Stage) -> Path:
    return stage.backups / f"{len(list(stage.backups.iterdir()))}.backup"


def _empty(database: EmbeddedPostgres) -> None:
    database.run_sql(f"drop database if exists {DATABASE} with (force);")
    database.create_database()


def _export(file: Path, url: str) -> None:
    _topolog("log", "export", "--out", str(file), "--database-url", url)


def _import(file: Path, url: str) -> None:
    _topolog("log", "import", str(file), "--database-url", url)


def _dump(file: Path, url: str) -> None:
    _tool("pg_dump", "--format", "custom", "--file", str(file), plain_url(url))


def _undump(file: Path, url: str) -> None:
    """Restore a dump. A dump does not show that it is older, so the operator begins the
    timeline."""
    _tool("pg_restore", "--dbname", plain_url(url), str(file))
    _topolog("log", "begin-timeline", "--database-url", url)


def _topolog(*arguments: str) -> None:
    done = topolog(*arguments)
    if done.returncode:
        raise RuntimeError(f"topolog {' '.join(arguments[:2])}: {done.stdout}{done.stderr}")


def _tool(name: str, *arguments: str) -> None:
    subprocess.run([find_postgres().tool(name), *arguments], check=True)


WAYS = {"export": Way(_export, _import), "pg_dump": Way(_dump, _undump)}
