"""Bench of a log's life on an embedded Postgres: a history made in bulk, folded cold, folded by a
release with other code, archived, pruned, and asked about before and after that.

A history of many days is cut to `--most-events`, because a year of 10 pods a second takes 3 TB in
rows; `days` is what was made. With `--in-rows` older events are made in files, as pruning leaves
them; then the first fold starts from a checkpoint, and only `--verify` reads everything. `--data`
keeps the log, or uses a kept one, which grows with `--most-events`.

Prints a JSON line for each step and a summary last. `cold_s`, `upgrade_s`, `explain_p99_s` and
`explain_pruned_p99_s` are CPU seconds of this process, `archive_per_s` are events a second of the
clock, and `bytes_per_pod` is the database after archiving. `bytes_per_pruned_pod` is what an ended
pod leaves in the tables of the log after it was pruned, with their indexes, after VACUUM FULL.
`questions` are processes of the command line. Exit code 1 if the two folds differ, or the log is
not whole before and after pruning.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from services.embedded.servers import EmbeddedServers
from services.replay.commands import verify
from services.replay.explain import explain
from services.replay.recomputing import Deciding
from services.scheduler.core import CoreConfig, SchedulerCore
from services.scheduler.handlers import fold_of
from services.scheduler.snapshot.config import CycleConfig, Provenance
from services.upkeep import pruning
from shared.domain.state_hash import state_hash
from shared.eventlog import postgres_care as care
from shared.eventlog import postgres_pruning
from shared.eventlog.archive_place import Folder
from shared.eventlog.history_file import Header
from shared.eventlog.migrate import upgrade
from shared.eventlog.postgres import PostgresEventLog
from shared.eventlog.postgres_connection import connect
from shared.runtime.projector import Fold, Projector
from tests.bench import _bulk as bulk
from tests.bench._asking import Asked, asked
from tests.bench._history import EVENTS_A_POD, History, pod_of

DAY_S = 86_400
UNBOUNDED = {"statement_timeout": "0", "idle_in_transaction_session_timeout": "0"}
# By table: the rows (`t`) that the events up to position $1 leave in it.
LEFT = {
    "commit_seen": "last <= $1",
    "stream_head": "$1 > 0 AND NOT EXISTS (SELECT FROM fact f WHERE f.stream = t.stream)"
    " AND NOT EXISTS (SELECT FROM archived_stream a WHERE a.stream = t.stream)",
    "pruned_stream": "last <= $1",
    "pod_name": "position <= $1",
    "archived_stream": "block <= $1",
    "archived_block": "first <= $1",
}


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench life", description=__doc__)
    parser.add_argument("--pods-per-s", type=float, default=10.0)
    parser.add_argument("--days", type=float, default=0.15, help="1 day of 10 pods/s: 7 M events")
    parser.add_argument(
        "--most-events", type=int, default=1_000_000, help="events made; the summary has their days"
    )
    parser.add_argument("--in-rows", type=int, default=0, help="newest events in rows; 0: all")
    parser.add_argument("--data", type=Path, help="folder of a log that is kept")
    parser.add_argument("--verify", action="store_true", help="verify a log with --in-rows")
    parser.add_argument("--nodes", type=int, default=40)
    parser.add_argument("--partition", type=int, default=100_000, help="positions a partition")
    parser.add_argument("--explained", type=int, default=50, help="pods that are explained")
    sys.exit(asyncio.run(_run(parser.parse_args(argv))))


async def _run(given: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory(prefix="topolog-bench-") as temporary:
        os.chmod(temporary, 0o711)
        folder = given.data or Path(temporary)
        async with EmbeddedServers(folder / "data", want_nats=False) as servers:
            return await _live(servers.database_url, folder / "files", given)


async def _live(url: str, folder: Path, given: argparse.Namespace) -> int:
    pods = min(int(given.pods_per_s * given.days * DAY_S), given.most_events // EVENTS_A_POD)
    await _filled(url, folder, given, pods)
    log = await PostgresEventLog.open(url)
    fold = fold_of(CoreConfig())
    cold_s, state = await _folded(log, fold)
    upgrade_s, second = await _folded(log, msgspec.structs.replace(fold, fingerprint="other code"))
    _print(step="folded", cold_s=cold_s, upgrade_s=upgrade_s, same=state == second)
    archive_per_s = await _archived(url)
    explain_p99_s = await _explained(log, pods, given.explained)
    is_verified = given.verify or not given.in_rows
    result = await verify(log, []) if is_verified else None
    bytes_per_pod = (await care.status(url)).bytes // pods
    questions = _ask(url, pods, given.explained)
    pruned_to, pruned = await _pruned(url, log, folder)
    fresh = await PostgresEventLog.open(url)
    explain_pruned_p99_s = await _explained(fresh, pods, given.explained)
    await fresh.close()
    if pruned_to:
        questions = _ask(url, pods, given.explained)
    is_whole = result is None or (
        result.ok
        and result
        == msgspec.structs.replace(await verify(log, []), events_per_s=result.events_per_s)
    )
    _print(
        days=round(pods / given.pods_per_s / DAY_S, 3),
        events=await log.head(),
        pods=pods,
        whole=is_whole if is_verified else "not verified",
        bytes_per_pod=bytes_per_pod,
        bytes_per_pruned_pod=pruned,
        cold_s=cold_s,
        upgrade_s=upgrade_s,
        explain_p99_s=explain_p99_s,
        explain_pruned_p99_s=explain_pruned_p99_s,
        archive_per_s=archive_per_s,
        question_s=max(answer.cpu_s for answer in questions),
        question_mb=max(answer.mb for answer in questions),
    )
    await log.close()
    return 0 if is_whole and state == second else 1


def _asked_pods(pods: int, most: int) -> list[int]:
    """Return an early, a middle and a late pod, or so many of these at most."""
    return [pods // 50, pods // 2, pods - 1][:most]


def _explained_pods(pods: int, count: int) -> list[int]:
    """Return pods of the whole history."""
    return [pods * number // count for number in range(count)]


def _ask(url: str, pods: int, most: int) -> list[Asked]:
    answers = []
    for number in _asked_pods(pods, most):
        uid, node = pod_of(number).uid, "n1"
        answers += [
            asked(url, ["explain", uid]),
            asked(url, ["why-not", uid, "--node", node]),
            asked(url, ["log", "--pod", uid]),
        ]
    answers += [
        asked(url, ["at", "-30000"]),
        asked(url, ["diff", "-30000", "head"]),
        asked(url, ["log", "--node", "n1", "--limit", "100"]),
    ]
    for answer in answers:
        _print(step="question", **msgspec.to_builtins(answer))
    return answers


async def _explained(log: PostgresEventLog, pods: int, count: int) -> float:
    """Explain pods. Return the CPU seconds that 99 of 100 stay below."""
    deciding, seconds = Deciding(CycleConfig(), Provenance("bench", "bench")), []
    for number in _explained_pods(pods, count):
        begun_s = time.process_time()
        await explain(log, pod_of(number).uid, deciding)
        seconds.append(time.process_time() - begun_s)
    return round(sorted(seconds)[count * 99 // 100], 2)


async def _filled(url: str, folder: Path, given: argparse.Namespace, pods: int) -> None:
    await upgrade(url)
    owner = await connect(url, UNBOUNDED, command_timeout_s=None)
    made_of = given.nodes, given.pods_per_s
    history = History(*made_of)
    begun_s, cpu_s, last = time.monotonic(), time.process_time(), history.events(pods)
    head = await owner.fetchval("SELECT position FROM counter")
    if head >= last:
        await owner.close()
        return
    if not head:
        for first in (1, 1_000_001):
            await owner.execute(f"DROP TABLE IF EXISTS fact_{first:016}")
        size = f"partition_size = {given.partition}, partitioned_to = 0"
        await owner.execute(f"UPDATE counter SET {size}")
    if given.in_rows:
        log = await PostgresEventLog.open(url)
        asked = {*_explained_pods(pods, given.explained), *_asked_pods(pods, given.explained)}
        pruned_to = await bulk.fill(log, owner, folder, made_of, pods, given.in_rows, asked)
        await log.close()
    else:
        await owner.execute("SELECT topolog_roll(0)")
        header, pruned_to = Header(log_id="bench", timeline=1, first=1, last=last), 0
        await care.take_in(url, header, history.blocks(pods), lambda _identity: [])
    await owner.close()
    seconds = round(time.monotonic() - begun_s, 1), round(time.process_time() - cpu_s, 1)
    _print(step="made", events=last, pruned_to=pruned_to, s=seconds[0], cpu_s=seconds[1])


async def _folded(log: PostgresEventLog, fold: Fold[SchedulerCore]) -> tuple[float, str]:
    """Start a projector, and return its CPU seconds to the head and the hash of its state."""
    begun_s = time.process_time()
    projector = Projector("scheduler", log, fold)
    run = asyncio.create_task(projector.run())
    await projector.wait_live()
    run.cancel()
    seconds = round(time.process_time() - begun_s, 2)
    return seconds, state_hash(projector.state.folded)


async def _archived(url: str) -> int:
    """Archive every full partition. Return the events a second."""
    begun_s, events = time.monotonic(), 0
    for partition in (await care.status(url)).partitions:
        if partition.full:
            await care.archive(url, partition)
            events += partition.last - partition.first + 1
    rate = int(events / (time.monotonic() - begun_s))
    _print(step="archived", events=events, archive_per_s=rate)
    return rate


async def _pruned(url: str, log: PostgresEventLog, folder: Path) -> tuple[int, float]:
    """Prune everything that a checkpoint follows. Return the last event that was pruned now, 0 for
    none, and the bytes that a pruned pod leaves.
    """
    begun_s = time.monotonic()
    prunable = await postgres_pruning.prunable(url)
    ranges = await pruning.due(log, prunable, pruning.LEAST_DAYS, time.time_ns() // 1000)
    done = await pruning.prune(
        log, prunable, ranges, Folder(folder), partial(postgres_pruning.prune, url)
    )
    seconds, last = round(time.monotonic() - begun_s, 1), done[-1].last if done else 0
    owner = await connect(url, UNBOUNDED, command_timeout_s=None)
    sizes, pods = {}, await owner.fetchval("SELECT count(*) FROM pruned_stream")
    for table, is_left in LEFT.items():
        await owner.execute(f"VACUUM FULL {table}")
        sizes[table] = await owner.fetchval(
            f"SELECT pg_total_relation_size('{table}')"
            f" * count(*) FILTER (WHERE {is_left}) / greatest(count(*), 1) FROM {table} t",
            last,
        )
    await owner.close()
    by_table = {table: round(float(size) / max(pods, 1), 1) for table, size in sizes.items()}
    _print(step="pruned", events=last, pods=pods, s=seconds, bytes_by_table=by_table)
    return last, round(float(sum(by_table.values())), 1)


def _print(**line: Any) -> None:
    print(json.dumps({"bench": "life"} | line), flush=True)
