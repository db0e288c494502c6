"""Bench of a log's life: a year of days on an embedded Postgres, each with pods that come and go,
archived every night.

Prints a JSON line every thirty days: events, events in rows, bytes in rows and in the archive. At
the end the whole year is folded and its chain followed; exit code 1 if anything differs. The days
follow the writers' clock: partitions are small, so that a year rolls as many of them as a large
cluster's would.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from pathlib import Path

from services.embedded.servers import EmbeddedServers
from services.replay.commands import verify
from services.upkeep.archiving import DAY_US, Limits, archive, due
from shared.eventlog import postgres_care as care
from shared.eventlog.migrate import upgrade
from shared.eventlog.port import Commit, Draft
from shared.eventlog.postgres import PostgresEventLog
from shared.eventlog.postgres_connection import connect
from shared.events.cluster_events import NodeObserved, PodEnded, PodObserved
from shared.events.report_events import NodeReported
from shared.events.scheduling_events import NodeCharged, PodReserved
from tests.ledger.given import pod, report, zone

BEGIN_US = 1_700_000_000_000_000


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench life", description=__doc__)
    parser.add_argument("--days", type=int, default=365)
    parser.add_argument("--pods", type=int, default=50, help="a day")
    parser.add_argument("--keep-days", type=float, default=30.0, help="what is older is archived")
    parser.add_argument("--partition", type=int, default=1000, help="positions a partition")
    sys.exit(asyncio.run(_run(parser.parse_args(argv))))


async def _run(given: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory(prefix="topolog-bench-") as folder:
        os.chmod(folder, 0o711)
        async with EmbeddedServers(Path(folder) / "data", want_nats=False) as servers:
            return await _live(servers.database_url, given)


async def _live(url: str, given: argparse.Namespace) -> int:
    await upgrade(url)
    owner = await connect(url)
    await owner.execute(
        "DROP TABLE fact_0000000000000001; DROP TABLE IF EXISTS fact_0000000001000001"
    )
    await owner.execute(
        f"UPDATE counter SET partition_size = {given.partition}, partitioned_to = 0"
    )
    await owner.execute("SELECT topolog_roll(0)")
    await owner.close()
    log = await PostgresEventLog.open(url)
    begun, relayed = time.process_time(), 0
    for day in range(given.days):
        now_us = BEGIN_US + day * DAY_US
        for start in range(0, given.pods, 100):
            await log.append(
                [
                    commit
                    for number in range(start, min(start + 100, given.pods))
                    for commit in _pod(day, number, now_us)
                ]
            )
        head = await log.head()
        await log.save_checkpoint("relay", head, relayed)
        relayed = head
        partitions = due(await care.status(url), Limits(older_than_days=given.keep_days), now_us)
        await archive(log, partitions, None, lambda partition: care.archive(url, partition))
        if day % 30 == 29 or day == given.days - 1:
            seen = await care.status(url)
            rows = sum(each.bytes for each in seen.partitions)
            line = {
                "bench": "life",
                "day": day + 1,
                "facts": head,
                "facts_in_rows": seen.events_in_rows,
                "rows_mb": round(rows / 1e6, 1),
            }
            print(
                json.dumps(line | {"archive_mb": round(seen.archived_bytes / 1e6, 1)}), flush=True
            )
    found = await verify(log, [])
    total = {
        "bench": "life",
        "days": given.days,
        "facts": found.positions,
        "whole": found.ok,
        "verify_facts_per_s": int(found.events_per_s),
    }
    print(json.dumps(total | {"cpu_s": round(time.process_time() - begun, 1)}), flush=True)
    await log.close()
    return 0 if found.ok and found.positions == relayed else 1


def _pod(day: int, number: int, now_us: int) -> list[Commit]:
    made = pod(f"pod-{day}-{number}", cpus=1)
    events = [
        [Draft(f"pod/{made.uid}", PodObserved(made))],
        [
            Draft(f"pod/{made.uid}", PodReserved(made.uid, "n1", 1)),
            Draft("node/n1", NodeCharged("n1", made.uid, {0: {"cpu": 1000}})),
        ],
        [Draft(f"pod/{made.uid}", PodEnded(made.uid, "succeeded", "n1"))],
    ]
    if day == number == 0:
        seen = [Draft("node/n1", NodeObserved("n1", "uid-n1", allocatable={"cpu": 16_000}))]
        events = [seen, [Draft("report/n1", NodeReported(report(zone(0, 8), zone(1, 8))))], *events]
    return [
        Commit(f"{made.uid}/{at}", "bench", 0, now_us + number, tuple(drafts))
        for at, drafts in enumerate(events)
    ]
