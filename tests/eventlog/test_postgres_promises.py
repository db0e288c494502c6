"""The promises of the log if writers race, die, are replaced, or lose the answers."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import asyncpg
import pytest

from shared.eventlog.errors import LogUnavailable
from shared.eventlog.migrate import upgrade
from shared.eventlog.port import Appended, Conflict, Duplicate, EventLog, Fenced
from shared.eventlog.postgres import PostgresEventLog
from shared.eventlog.postgres_append import Appender
from shared.eventlog.postgres_batch import APPEND, arguments, encode_commit
from shared.eventlog.postgres_connection import connect
from shared.eventlog.revisions import newest_revision
from tests.eventlog.words import commit, draft, given, places

WRITERS = 16
COMMITS = 25


async def _race_one(url: str, number: int) -> list[tuple[str, int]]:
    """Append on shared streams, each time at the last version that was seen. Return the versions of
    the appended events.
    """
    log = await PostgresEventLog.open(url, pool_size=1)
    won = []
    for turn in range(COMMITS):
        stream = f"s{(number + turn) % 4}"
        version = (await log.versions([stream]))[stream]
        (outcome,) = await log.append(
            [commit(f"{number}.{turn}", draft(stream, version), draft(f"own{number}"))]
        )
        if isinstance(outcome, Appended):
            won.append((stream, outcome.versions[stream]))
        else:
            assert isinstance(outcome, Conflict)
            assert outcome.actual > version
    await log.close()
    return won


async def _follow(log: EventLog, stop: asyncio.Event) -> int:
    """Read events as they appear, and check that each position is the last one plus 1."""
    last = 0
    while not stop.is_set() or await log.head() > last:
        for event in await log.read(last, 100):
            assert event.position == last + 1
            last = event.position
        await log.wait(last, 0.05)
    return last


async def test_sixteen_racing_writers_leave_no_hole_and_each_version_has_one_winner(
    log_url: str, postgres_log: PostgresEventLog
) -> None:
    stop = asyncio.Event()
    reader = asyncio.create_task(_follow(postgres_log, stop))
    wins = [
        win
        for won in await asyncio.gather(*(_race_one(log_url, n) for n in range(WRITERS)))
        for win in won
    ]
    stop.set()
    assert await reader == await postgres_log.head() == 2 * len(wins)
    for stream in sorted({stream for stream, _ in wins}):
        versions = sorted(version for name, version in wins if name == stream)
        assert versions == list(range(1, len(versions) + 1))


async def test_a_killed_writer_leaves_whole_commits_and_no_hole(
    log_url: str, postgres_log: PostgresEventLog
) -> None:
    command = (sys.executable, "-m", "tests.eventlog.writer_process", log_url)
    writers = [
        await asyncio.create_subprocess_exec(*command, f"w{n}", stdout=asyncio.subprocess.PIPE)
        for n in range(3)
    ]
    received = 0
    for turn in range(15):
        for writer in writers:
            assert writer.stdout is not None
            received = max(received, int(await writer.stdout.readline()))
        if turn == 12:
            writers[0].kill()
            writers.pop(0)
    for writer in writers:
        writer.kill()
        await writer.wait()
    stood = await places(postgres_log)
    assert [position for position, _, _ in stood] == list(range(1, len(stood) + 1))
    assert len(stood) >= received
    for first, second in zip(stood[::2], stood[1::2], strict=True):
        assert (first[1].replace("/a", "/b"), first[2]) == second[1:]


async def test_an_append_that_was_not_committed_leaves_nothing(
    log_url: str, postgres_log: PostgresEventLog
) -> None:
    dying = await connect(log_url)
    await dying.execute("BEGIN")
    await dying.fetchrow(APPEND, *arguments([encode_commit(commit("lost", draft("s", 0)))]))
    waiting = asyncio.create_task(postgres_log.append([commit("next", draft("s", 0))]))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    dying.terminate()
    assert await waiting == [Appended(1, 1, {"s": 1})]


async def test_the_old_leader_writes_nothing_once_a_new_one_holds_the_role(
    log_url: str, postgres_log: PostgresEventLog
) -> None:
    another_one = await PostgresEventLog.open(log_url)
    old = await postgres_log.acquire("binder", "old", 0.05)
    assert old is not None
    await asyncio.sleep(0.1)
    new = await another_one.acquire("binder", "new", 30)
    assert new is not None
    fenced = await asyncio.gather(
        *(
            postgres_log.append([commit(f"late{n}", role="binder", epoch=old.epoch)])
            for n in range(5)
        )
    )
    assert fenced == [[Fenced("binder", old.epoch, new.epoch)]] * 5
    assert await another_one.head() == 0
    await another_one.close()


async def test_a_lease_ends_with_the_session_of_its_holder(
    log_url: str, postgres_log: PostgresEventLog
) -> None:
    """The session ends as after kill -9: its holder releases no lease, and no process has to wait
    for the ttl.
    """
    dying = await PostgresEventLog.open(log_url)
    old, member = (
        await dying.acquire("binder", "old", 60),
        await dying.acquire("scheduler/0", "old", 60),
    )
    assert old is not None
    assert await postgres_log.acquire("binder", "new", 60) is None
    assert await postgres_log.members("scheduler") == [member]
    dying._session._drop()
    async with asyncio.timeout(10):
        while (new := await postgres_log.acquire("binder", "new", 60)) is None:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert await postgres_log.members("scheduler") == []
    fenced = await dying.append(
        [commit("late", role="binder", epoch=old.epoch), commit("too", role="scheduler/0", epoch=1)]
    )
    assert fenced == [Fenced("binder", old.epoch, new.epoch), Fenced("scheduler/0", 1, 2)]
    await dying.close()


async def test_a_holder_that_lost_its_session_and_lives_takes_its_leases_into_the_next(
    log_url: str, postgres_log: PostgresEventLog
) -> None:
    holder = await PostgresEventLog.open(log_url)
    lease = await holder.acquire("binder", "alive", 60)
    holder._session._drop()
    assert await holder.acquire("binder", "alive", 60) == lease
    await asyncio.sleep(0.1)
    assert await holder.acquire("binder", "alive", 60) == lease, (
        "the server may have seen the old session end only now"
    )
    assert await postgres_log.acquire("binder", "other", 60) is None
    await holder.close()


class _LosesAnswers:
    """A connection that sends, and loses the first `losses` answers."""

    def __init__(self, connection: Any, losses: list[int]) -> None:
        self._connection = connection
        self._losses = losses

    async def fetchrow(self, *request: Any) -> Any:
        row = await self._connection.fetchrow(*request)
        if self._losses[0]:
            self._losses[0] -= 1
            raise asyncpg.ConnectionDoesNotExistError(
                "connection was closed in the middle of operation"
            )
        return row

    def terminate(self) -> None:
        self._connection.terminate()


async def test_a_batch_whose_answer_was_lost_is_sent_again_and_answered_with_its_positions(
    log_url: str, postgres_log: PostgresEventLog
) -> None:
    losses = [2]

    async def losing() -> _LosesAnswers:
        return _LosesAnswers(await connect(log_url), losses)

    appender = Appender(losing, lambda _position: None)
    outcomes = await appender.append(
        [commit("a", draft("s", 0), draft("t", 0)), commit("b", draft("s", 9))]
    )
    await appender.close()
    assert outcomes == [Duplicate(1, 2), Conflict("s", 9, 1)]
    assert await postgres_log.head() == 2


async def test_a_database_that_stays_away_is_an_error_of_the_caller() -> None:
    async def refused() -> Any:
        raise ConnectionRefusedError("nobody listens")

    appender = Appender(refused, lambda _position: None, retry_for_s=0.3)
    with pytest.raises(LogUnavailable, match="TOPOLOG_DATABASE_URL"):
        await appender.append([commit("a")])
    await appender.close()


async def _cut_connections(url: str) -> None:
    """End every other session of this database."""
    connection = await connect(url)
    query = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = "
        "current_database() AND pid <> pg_backend_pid()"
    )
    await connection.fetch(query)
    await connection.close()


async def test_cut_connections_are_not_noticed_by_callers(
    log_url: str, postgres_log: PostgresEventLog
) -> None:
    assert not await postgres_log.wait(0, 0.1)
    for turn in range(3):
        await given(postgres_log, f"s{turn}")
        await _cut_connections(log_url)
        assert await postgres_log.head() == turn + 1
    assert len(await postgres_log.read(0)) == 3


async def test_wait_hears_another_process_even_after_its_listener_was_cut(
    log_url: str, postgres_log: PostgresEventLog
) -> None:
    another_one = await PostgresEventLog.open(log_url)
    for turn in range(2):
        waiting = asyncio.create_task(postgres_log.wait(turn, 10.0))
        await asyncio.sleep(0.1)
        await given(another_one, f"s{turn}")
        assert await waiting
        await _cut_connections(log_url)
    await another_one.close()


async def test_partitions_are_made_ahead_and_reading_crosses_them(
    log_url: str, postgres_log: PostgresEventLog
) -> None:
    owner = await connect(log_url)
    parts = await owner.fetch(
        "SELECT inhrelid::regclass::text AS name FROM pg_inherits WHERE inhparent = "
        "'fact'::regclass"
    )
    for part in parts:
        await owner.execute(f"DROP TABLE {part['name']}")
    await owner.execute("UPDATE counter SET partition_size = 10, partitioned_to = 0")
    for turn in range(12):
        await postgres_log.append([commit(f"{turn}.{n}", draft("s")) for n in range(turn * 3)])
        reach = await owner.fetchrow("SELECT position, partitioned_to, partition_size FROM counter")
        assert (
            reach["partitioned_to"] >= reach["position"] + reach["partition_size"]
            or reach["position"] == 0
        )
    head = await postgres_log.head()
    await owner.close()
    assert [event.position for event in await postgres_log.read(0, 1000)] == list(
        range(1, head + 1)
    )
    assert [event.version for event in await postgres_log.read_stream("s", 15, 10)] == list(
        range(16, 26)
    )


async def test_processes_that_start_together_migrate_once(database_url: str) -> None:
    changed = await asyncio.gather(*(upgrade(database_url) for _ in range(4)))
    assert sorted(changed) == [False, False, False, True]
    connection = await connect(database_url)
    assert await connection.fetchval("SELECT version_num FROM alembic_version") == newest_revision()
    assert await connection.fetchval("SELECT count(*) FROM counter") == 1
    await connection.close()
