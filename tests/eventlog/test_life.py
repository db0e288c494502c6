"""The life of a log in a real Postgres: imported, archived, redacted, and killed in the middle of
it; nothing is lost.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from services.replay.commands import verify
from services.replay.reading import ledger_at
from services.upkeep import archiving
from services.upkeep.archiving import Limits, due
from services.upkeep.errors import UpkeepRefused
from services.upkeep.exporting import export
from services.upkeep.importing import import_history
from services.upkeep.redacting import redact
from shared.domain.state_hash import state_hash
from shared.eventlog import postgres_care as care
from shared.eventlog.archive_place import Folder
from shared.eventlog.errors import LogBroken, LoginTooWeak
from shared.eventlog.file_log import FileLog
from shared.eventlog.port import Commit, Draft, Duplicate, Place
from shared.eventlog.postgres import PostgresEventLog
from shared.eventlog.postgres_connection import connect
from shared.eventlog.whole_stream import envelopes_of
from shared.events.binding_events import BindIntended, PodBound
from shared.events.catalog import Event
from shared.events.cluster_events import NodeObserved, PodEnded, PodObserved, PodRunning
from shared.events.codec import decode
from shared.events.log_events import LogOpened
from shared.events.report_events import NodeReportChanged, NodeReported
from shared.events.scheduling_events import NodeCharged, PodReserved
from tests.eventlog.schema import COLUMNS
from tests.fixtures.servers import PostgresServer
from tests.ledger.given import held, pod, report, zone

PARTITION = 40
PODS = 24
MINUTE_US = 60 * 1_000_000
BEGIN_US = 1_700_000_000_000_000


def events() -> list[list[tuple[str, Event]]]:
    """Return the events of pods that start, run, are confirmed and end, one after the other."""
    received: list[list[tuple[str, Event]]] = [
        [("node/n1", NodeObserved("n1", "uid-n1", allocatable={"cpu": 16_000}))],
        [("report/n1", NodeReported(report(zone(0, 8), zone(1, 8))))],
    ]
    for number in range(PODS):
        pod_spec = pod(f"alice-{number}", cpus=2, labels={"owner": f"home-of-alice-{number}"})
        uid, name = pod_spec.uid, pod_spec.name
        received += [
            [(f"pod/{uid}", PodObserved(pod_spec))],
            [
                (f"pod/{uid}", PodReserved(uid, "n1", 1)),
                ("node/n1", NodeCharged("n1", uid, {0: {"cpu": 2000}})),
            ],
            [(f"pod/{uid}", BindIntended(uid, "ns", name, "n1", 1))],
            [(f"pod/{uid}", PodBound(uid, "n1"))],
            [
                (
                    "report/n1",
                    NodeReportChanged(
                        "n1",
                        "boot-1",
                        10 + 3 * number,
                        available={0: {"cpu": 6000}},
                        listed=(held(name, 0, 2),),
                    ),
                )
            ],
            [(f"pod/{uid}", PodRunning(uid, "n1"))],
            [(f"pod/{uid}", PodEnded(uid, "succeeded", "n1"))],
            [
                (
                    "report/n1",
                    NodeReportChanged(
                        "n1",
                        "boot-1",
                        11 + 3 * number,
                        available={0: {"cpu": 8000}},
                        unlisted=(f"ns/{name}",),
                    ),
                )
            ],
            [
                (
                    "report/n1",
                    NodeReportChanged(
                        "n1", "boot-1", 12 + 3 * number, available={1: {"cpu": 8000}}
                    ),
                )
            ],
        ]
    return received


def commits() -> list[Commit]:
    return [
        Commit(
            f"c{number}",
            "test",
            0,
            BEGIN_US + number * MINUTE_US,
            tuple(Draft(*draft) for draft in drafts),
        )
        for number, drafts in enumerate(events())
    ]


@pytest.fixture
async def log(log_url: str) -> AsyncIterator[PostgresEventLog]:
    """Yield a log with small partitions and a short history."""
    owner = await connect(log_url)
    await owner.execute(
        "DROP TABLE fact_0000000000000001; DROP TABLE IF EXISTS fact_0000000001000001"
    )
    await owner.execute(f"UPDATE counter SET partition_size = {PARTITION}, partitioned_to = 0")
    await owner.execute("SELECT topolog_roll(0)")
    await owner.close()
    opened = await PostgresEventLog.open(log_url, retry_for_s=10.0)
    for commit in commits():
        await opened.append([commit])
    yield opened
    await opened.close()


async def relayed(log: PostgresEventLog, position: int | None = None) -> None:
    await log.save_checkpoint("relay", await log.head() if position is None else position, 0)


async def archived(
    url: str,
    log: PostgresEventLog,
    folder: Path | None = None,
    limits: Limits = Limits(),  # noqa: B008
) -> int:
    partitions = due(await care.status(url), limits, BEGIN_US)
    done = await archiving.archive(
        log,
        partitions,
        Folder(folder) if folder else None,
        lambda partition: care.archive(url, partition),
    )
    return done[-1].last if done else 0


async def everything(log: Any) -> list[Any]:
    result: list[Any] = []
    while page := await log.read(len(result), 37):
        result += page
    return result


async def of_stream(log: Any, *stream: Any) -> list[Any]:
    return [envelope async for envelope in envelopes_of(log, *stream)]


async def test_archived_events_read_as_if_they_were_rows(
    log: PostgresEventLog, log_url: str, tmp_path: Path
) -> None:
    earlier = await everything(log)
    pods = {
        f"pod/uid-alice-{number}": await log.read_stream(f"pod/uid-alice-{number}")
        for number in range(PODS)
    }
    nodes = await log.read_stream("node/n1")
    await relayed(log)
    last = await archived(log_url, log, tmp_path)
    assert last == len(earlier) // PARTITION * PARTITION
    fresh = await PostgresEventLog.open(log_url)
    for reader in (log, fresh):
        assert await everything(reader) == earlier
        assert {stream: await of_stream(reader, stream) for stream in pods} == pods
        assert await of_stream(reader, "node/n1") == nodes
        assert await of_stream(reader, "node/n1", 5, 3) == nodes[5:8]
    assert (await verify(fresh, [])).ok
    assert await everything(FileLog.open(tmp_path)) == earlier[:last]
    (outcome,) = await fresh.append(commits()[:1])
    assert isinstance(outcome, Duplicate)
    await fresh.close()


async def test_nothing_above_the_lowest_checkpoint_goes(
    log: PostgresEventLog, log_url: str
) -> None:
    await relayed(log, 2 * PARTITION + 1)
    assert await archived(log_url, log) == 2 * PARTITION
    assert (await care.status(log_url)).archived_to == 2 * PARTITION


def test_age_and_size_decide_what_goes() -> None:
    parts = [
        care.Partition(
            f"p{index_at}",
            index_at * 10 + 1,
            index_at * 10 + 10,
            1000,
            True,
            index_at * archiving.DAY_US,
        )
        for index_at in range(5)
    ]
    status = care.Status(
        "l", 1, 55, 55, 0, 55, 0, 0, 0, {}, [*parts, care.Partition("p5", 51, 55, 1000, False)]
    )
    now_us = 10 * archiving.DAY_US

    def names(limits: Limits) -> list[str]:
        return [item.name for item in due(status, limits, now_us)]

    assert names(Limits()) == ["p0", "p1", "p2", "p3", "p4"]
    assert names(Limits(older_than_days=8)) == ["p0", "p1", "p2"]
    assert names(Limits(keep_bytes=4000)) == ["p0", "p1"]
    assert names(Limits(keep_bytes=100_000)) == []


async def test_an_altered_block_is_never_read_past(log: PostgresEventLog, log_url: str) -> None:
    await relayed(log)
    await archived(log_url, log)
    owner = await connect(log_url)
    await owner.execute(
        "UPDATE archived_block SET data = set_byte(data, 40, get_byte(data, 40) # 1)"
    )
    await owner.close()
    with pytest.raises(LogBroken, match="was altered"):
        await log.read(0)


async def test_other_logins_may_not(log: PostgresEventLog, log_url: str) -> None:
    await relayed(log)
    (partition, *_) = due(await care.status(log_url), Limits(), BEGIN_US)
    owner = await connect(log_url)
    await owner.execute(
        "DO $$ BEGIN CREATE ROLE somebody LOGIN PASSWORD 'x'; EXCEPTION WHEN "
        "duplicate_object THEN NULL; END $$"
    )
    await owner.close()
    somebody = log_url.replace("//postgres@", "//somebody:x@")
    with pytest.raises(LoginTooWeak, match=r"may not archive; give .*topolog_keeper"):
        await care.archive(somebody, partition)
    with pytest.raises(LoginTooWeak, match="only the owner of the log may do this; "):
        await care.mask(somebody, [1], lambda *_: b"{}")
    with pytest.raises(
        LoginTooWeak,
        match=r"permission denied.*; give --database-url with the login topolog_viewer",
    ):
        await care.status(somebody)


async def test_a_readers_login_sees_the_size_of_the_log_and_of_all_that_grows_with_it(
    log: PostgresEventLog, log_url: str
) -> None:
    await relayed(log)
    await archived(log_url, log)
    owner = await connect(log_url)
    await owner.execute(
        "DO $$ BEGIN CREATE ROLE a_viewer LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$"
    )
    await owner.execute("GRANT topolog_reader TO a_viewer")
    await owner.close()
    status = await care.status(log_url.replace("//postgres@", "//a_viewer@"))
    assert status == await care.status(log_url)
    assert set(status.tables) == tables_that_grow()
    assert all(
        status.tables[name] > 0
        for name in ("fact", "archived_block", "archived_stream", "commit_seen", "stream_head")
    )
    assert sum(status.tables.values()) < status.bytes


def tables_that_grow() -> set[str]:
    """Return the tables that grow with the log. Others have a row for the log, a role, a consumer
    or a migration.
    """
    return set(COLUMNS) - {
        "counter",
        "writer",
        "lease",
        "checkpoint",
        "schema_works_from",
        "pod_name_from",
        "pruned",
    }


async def test_a_history_is_restored_whole_on_a_new_timeline(
    log: PostgresEventLog,
    log_url: str,
    postgres_server: PostgresServer,
    tmp_path: Path,
) -> None:
    await relayed(log)
    await archived(log_url, log)
    earlier, file = await everything(log), tmp_path / "x.topolog.gz"
    await export(log, file, 1, len(earlier))
    empty = postgres_server.create()
    done = await import_history(empty, file, 1)
    restored = await PostgresEventLog.open(empty)
    *taken, opened = await everything(restored)
    assert (done.last, taken) == (len(earlier), earlier)
    assert (decode(opened), done.timeline) == (LogOpened(done.log_id, 2), 2)
    assert (await verify(restored, [])).ok
    assert await restored.load_checkpoint("relay") == len(earlier)
    assert await restored.versions(["node/n1", "report/n1"]) == await log.versions(
        ["node/n1", "report/n1"]
    )
    (outcome,) = await restored.append(commits()[:1])
    assert isinstance(outcome, Duplicate)
    await restored.append([Commit("new", "test", 0, 1, (Draft("node/n1", events()[0][0][1]),))])
    assert (await verify(restored, [])).ok
    with pytest.raises(UpkeepRefused, match="holds"):
        await import_history(empty, file, 1)
    await restored.close()
    postgres_server.drop(empty)


async def test_redaction_masks_the_text_everywhere_and_changes_no_position_version_or_chain(
    log: PostgresEventLog,
    log_url: str,
    tmp_path: Path,
) -> None:
    await relayed(log)
    await archived(log_url, log)
    earlier, state = await everything(log), state_hash(await ledger_at(log))
    whole = tmp_path / "before.topolog.gz"
    await export(log, whole, 1, len(earlier))
    (first,) = await redact(log, "alice-3", "me", "asked for", 1, partial(care.mask, log_url))
    (second,) = await redact(log, "ns/alice-22", "me", "asked for", 1, partial(care.mask, log_url))
    fresh = await PostgresEventLog.open(log_url)
    later = await everything(fresh)
    assert [row.chain for row in later[: len(earlier)]] == [row.chain for row in earlier]
    texts = (
        b'"alice-3"',
        b'ns/alice-3"',
        b'"alice-22"',
        b'ns/alice-22"',
        b'of-alice-3"',
        b'of-alice-22"',
    )
    shown = [row.position for row in later if any(text in row.payload for text in texts)]
    assert shown == []
    assert [row.position for row in later if b"alice-4" in row.payload] == [
        row.position for row in earlier if b"alice-4" in row.payload
    ]
    assert first.rows >= 4
    assert first.name != second.name
    result = await verify(fresh, [])
    assert (result.ok, result.violations) == (True, [])
    assert state_hash(await ledger_at(fresh, len(earlier))) == state
    file = tmp_path / "after.topolog.gz"
    await export(fresh, file, 1, await fresh.head())
    assert (await verify(FileLog.open(file), [])).ok
    again = await redact(fresh, "uid-alice-3", "me", "asked for", 1, partial(care.mask, log_url))
    assert (again[0].rows, await fresh.head()) == (0, len(later))
    await fresh.close()


async def test_an_interrupted_redaction_is_explained_and_finished_by_the_same_command(
    log: PostgresEventLog, log_url: str
) -> None:
    async def dies(*_: object) -> int:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await redact(log, "alice-3", "me", "asked for", 1, dies)
    head = await log.head()
    assert (await verify(log, [])).ok
    (done,) = await redact(log, "alice-3", "me", "asked for", 1, partial(care.mask, log_url))
    assert (done.rows > 0, await log.head()) == (True, head)
    assert (await verify(log, [])).ok


async def test_a_masked_row_without_its_event_is_an_altered_row(
    log: PostgresEventLog, log_url: str
) -> None:
    await care.mask(
        log_url,
        [3],
        lambda *_: (
            b'{"type":"PodObserved","pod":{"uid":"uid-alice-0","namespace":"ns","name":"x"}}'
        ),
    )
    assert [violation.invariant for violation in (await verify(log, [])).violations][:1] == [
        "history"
    ]


async def test_a_pod_that_lives_is_not_redacted(log: PostgresEventLog) -> None:
    await log.append(
        [Commit("alive", "test", 0, 1, (Draft("pod/uid-bob", PodObserved(pod("bob", cpus=1))),))]
    )
    with pytest.raises(UpkeepRefused, match="has not ended"):
        await redact(log, "bob", "me", "asked for", 1, partial(care.mask, ""))


async def killed(
    command: list[str], url: str, lock: tuple[Any, ...], reached: tuple[str, Any]
) -> None:
    """Run a command while another session holds what the statement `lock` locks, and kill -9 it
    once the query `reached` has its value."""
    holder, watcher = [
        await connect(url, {"idle_in_transaction_session_timeout": "0"}) for _ in range(2)
    ]
    query, wanted = reached
    async with holder.transaction():
        await holder.execute(*lock)
        process = await asyncio.create_subprocess_exec(*command)
        async with asyncio.timeout(60):
            while await watcher.fetchval(query) != wanted:
                assert process.returncode is None
                await asyncio.sleep(0.02)
        process.kill()
        assert await process.wait() == -signal.SIGKILL
    await holder.close()
    await watcher.close()


async def test_killed_with_a_partition_in_blocks_it_loses_nothing_and_finishes_when_run_again(
    log: PostgresEventLog, log_url: str, tmp_path: Path
) -> None:
    await relayed(log)
    earlier = await everything(log)
    folder = tmp_path / "archive"
    arguments = ["log", "archive", "--to", str(folder), "--database-url", log_url]
    command = [sys.executable, "-m", "services.cli.main", *arguments]
    for first in (1, PARTITION + 1):
        partition = f"fact_{first:016}"
        waits = (
            "SELECT count(*) FROM pg_locks WHERE NOT granted AND mode = 'AccessExclusiveLock'"
            f" AND relation = '{partition}'::regclass"
        )
        lock = (f"LOCK TABLE {partition} IN ACCESS SHARE MODE",)
        await killed(command, log_url, lock, (waits, 1))
        assert (await care.status(log_url)).archived_to == first - 1
        assert await everything(log) == earlier
    process = await asyncio.create_subprocess_exec(*command)
    assert await process.wait() == 0
    assert (await verify(log, [])).ok
    assert (
        await everything(FileLog.open(folder)) == earlier[: len(earlier) // PARTITION * PARTITION]
    )


async def test_a_killed_redaction_loses_nothing_and_finishes_when_run_again(
    log: PostgresEventLog,
    log_url: str,
) -> None:
    await relayed(log)
    earlier = await everything(log)
    # By uid: a run that came to its end before it was killed has masked the name.
    arguments = ["redact", "uid-alice-3", "--reason", "asked"]
    command = [
        sys.executable,
        "-m",
        "services.cli.main",
        "log",
        *arguments,
        "--database-url",
        log_url,
    ]
    for delay_s in (0.9, 1.3):
        process = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
        )
        await asyncio.sleep(delay_s)
        if process.returncode is None:
            os.kill(process.pid, signal.SIGKILL)
        await process.wait()
        result = await verify(log, [])
        assert (result.ok, result.violations) == (True, [])
        assert [row.chain for row in (await everything(log))[: len(earlier)]] == [
            row.chain for row in earlier
        ]
    process = await asyncio.create_subprocess_exec(*command)
    assert await process.wait() == 0
    assert (await verify(log, [])).ok


async def test_a_snapshot_of_an_archived_position_is_still_found(
    log: PostgresEventLog, log_url: str
) -> None:
    await relayed(log)
    event = (await log.read(19, 1))[0]
    await log.save_snapshot("ledger", "f", Place(20, event.chain), b"state")
    await log.save_snapshot("ledger", "f", Place(30, b"another history"), b"other")
    # Nothing above the newest snapshot of a projection is archived.
    newest = (await log.read(2 * PARTITION, 1))[0]
    await log.save_snapshot("ledger", "g", Place(newest.position, newest.chain), b"newer")
    assert await archived(log_url, log) == 2 * PARTITION
    assert await log.load_snapshot("ledger", "f") == (Place(20, event.chain), b"state")
