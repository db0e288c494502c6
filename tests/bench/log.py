"""Bench of the event log on an embedded Postgres with fsync on: appending alone, by many, in
batches; following; reading back.

A JSON line a measurement, first the settings that decide durability. `appends` are commits of one
event. `p50_ms` and `p99_ms` are of one append call; `lag_p50_ms` and `lag_p99_ms` from before that
call until another process, which reads as services do, has handled the event. `--database-url`
measures a server of your own (a new, empty database; nothing is removed).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Iterator
from pathlib import Path

import asyncpg
from msgspec.structs import replace

from services.embedded.postgres import PostgresSettings
from services.embedded.servers import EmbeddedServers
from shared.eventlog.migrate import upgrade
from shared.eventlog.port import Appended, Commit, Draft
from shared.eventlog.postgres import PostgresEventLog
from shared.eventlog.postgres_connection import plain_url
from shared.events.codec import decode
from shared.events.scheduling_events import NodeCharged, PodReserved

GIB = 1 << 30
# Within this time a follower starts and reads the appended events.
FOLLOWED_S = 60.0


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench log", description=__doc__)
    parser.add_argument(
        "--database-url",
        default="",
        help="an empty database; default: an embedded one, made and removed",
    )
    parser.add_argument("--seconds", type=float, default=3.0, help="length of each measurement")
    given = parser.parse_args(argv)
    asyncio.run(_run(given.database_url, given.seconds))


async def _run(url: str, seconds: float) -> None:
    if url:
        return await _measure(url, seconds)
    with tempfile.TemporaryDirectory(prefix="topolog-bench-") as folder:
        os.chmod(folder, 0o711)
        servers = EmbeddedServers(
            Path(folder) / "data", want_nats=False, postgres_settings=PostgresSettings(durable=True)
        )
        async with servers:
            await _measure(servers.database_url, seconds)
    return None


async def _measure(url: str, seconds: float) -> None:
    await upgrade(url)
    await _show_settings(url)
    log = await PostgresEventLog.open(url)
    try:
        await _appending(log, "one at a time", callers=1, batch=1, seconds=seconds)
        for callers in (8, 64, 500):
            await _appending(
                log, f"{callers} callers, group commit", callers=callers, batch=1, seconds=seconds
            )
        for batch in (10, 100, 500):
            await _appending(log, f"batches of {batch}", callers=1, batch=batch, seconds=seconds)
        await _contended(url, seconds)
        await _following(
            url,
            log,
            "one at a time, 10 ms apart",
            callers=1,
            batch=1,
            seconds=seconds,
            pause_s=0.01,
        )
        for callers, batch in ((1, 1), (64, 1), (1, 100)):
            how = f"{callers} at once, batches of {batch}"
            await _following(url, log, how, callers=callers, batch=batch, seconds=seconds)
        await _reading(log)
    finally:
        await log.close()


async def _show_settings(url: str) -> None:
    connection = await asyncpg.connect(plain_url(url))
    names = (
        "server_version",
        "fsync",
        "synchronous_commit",
        "full_page_writes",
        "wal_level",
        "shared_buffers",
    )
    _print("settings", **{name: await connection.fetchval(f"SHOW {name}") for name in names})
    await connection.close()


def _commits(tag: str) -> Iterator[Commit]:
    """Yield reservations of new pods, of realistic size."""
    number = 0
    while True:
        number += 1
        uid = f"{tag}-{number:012d}"
        reserved = PodReserved(
            uid, "node-17", 3, 41, 1, 87, 412, {"main": (0,)}, False, "c0ffee", "badcafe"
        )
        yield Commit(f"reserve/{uid}", "scheduler", 0, 1, (Draft(f"pod/{uid}", reserved, 0),), uid)


async def _appending(
    log: PostgresEventLog, what: str, callers: int, batch: int, seconds: float
) -> None:
    _print("append", how=what, **await _append(log, what, callers, batch, seconds))


async def _append(
    log: PostgresEventLog, tag: str, callers: int, batch: int, seconds: float, pause_s: float = 0.0
) -> dict[str, float]:
    """Append for that many seconds; return the durations."""
    took_s: list[float] = []
    begun_s = time.perf_counter()

    async def caller(number: int) -> None:
        source = _commits(f"{tag}-{number}")
        while time.perf_counter() - begun_s < seconds:
            time_us = time.time_ns() // 1000
            commits = [replace(next(source), time_us=time_us) for _ in range(batch)]
            asked_s = time.perf_counter()
            outcomes = await log.append(commits)
            took_s.append(time.perf_counter() - asked_s)
            assert all(isinstance(outcome, Appended) for outcome in outcomes)
            await asyncio.sleep(pause_s)

    await asyncio.gather(*(caller(number) for number in range(callers)))
    elapsed_s = time.perf_counter() - begun_s
    took_s.sort()
    return {
        "appends_per_s": round(len(took_s) * batch / elapsed_s),
        "p50_ms": round(took_s[len(took_s) // 2] * 1e3, 3),
        "p99_ms": round(took_s[int(len(took_s) * 0.99)] * 1e3, 3),
    }


async def _following(
    url: str,
    log: PostgresEventLog,
    how: str,
    callers: int,
    batch: int,
    seconds: float,
    pause_s: float = 0.0,
) -> None:
    """Append while another process follows from the head; the last event is one of this process."""
    last = f"last of {how}"
    command = [sys.executable, "-m", "tests.bench._follower", url, str(await log.head()), last]
    follower = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=DEVNULL)
    assert follower.stdout is not None
    async with asyncio.timeout(seconds + FOLLOWED_S):
        assert await follower.stdout.readline() == b"ready\n", (
            f"the follower ended; try {' '.join(command)}"
        )
        appended = await _append(log, how, callers, batch, seconds, pause_s)
        await log.append(
            [replace(next(_commits(last)), commit_id=last, time_us=time.time_ns() // 1000)]
        )
        _print("follow", how=how, **appended, **json.loads(await follower.stdout.readline()))
        await follower.wait()


async def _contended(url: str, seconds: float) -> None:
    """Append from four processes that reserve on few nodes at once. Each commit has two events, and
    each event expects the version that its writer saw.
    """
    logs = [await PostgresEventLog.open(url, pool_size=2) for _ in range(4)]
    begun_s, won, lost = time.perf_counter(), 0, 0

    async def scheduler(number: int, log: PostgresEventLog) -> None:
        nonlocal won, lost
        for turn, commit in enumerate(_commits(f"race-{number}")):
            if time.perf_counter() - begun_s > seconds:
                return
            node = f"node/{turn % 8}"
            version = (await log.versions([node]))[node]
            charge = Draft(
                node,
                NodeCharged(node, commit.correlation, {0: {"cpu": 4000, "memory": 8 * GIB}}),
                version,
            )
            (outcome,) = await log.append(
                [Commit(commit.commit_id, "s", 0, 1, (*commit.drafts, charge))]
            )
            won, lost = (
                won + isinstance(outcome, Appended),
                lost + (not isinstance(outcome, Appended)),
            )

    await asyncio.gather(*(scheduler(number, log) for number, log in enumerate(logs)))
    _print("contended", schedulers=4, nodes=8, commits_per_s=round(won / seconds), conflicts=lost)
    for log in logs:
        await log.close()


async def _reading(log: PostgresEventLog) -> None:
    begun_s, last, decoded_s = time.perf_counter(), 0, 0.0
    while page := await log.read(last, 10_000):
        assert page[0].position == last + 1
        last = page[-1].position
        asked_s = time.perf_counter()
        for envelope in page:
            decode(envelope)
        decoded_s += time.perf_counter() - asked_s
    elapsed_s = time.perf_counter() - begun_s
    _print(
        "replay",
        events=last,
        events_per_s=round(last / elapsed_s),
        of_which_decoding_share=round(decoded_s / elapsed_s, 2),
    )


def _print(kind: str, **values: object) -> None:
    print(json.dumps({"bench": "log", "kind": kind, **values}), flush=True)
