"""Processes that append at once share a transaction, and each gets its own answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from shared.eventlog import postgres_append
from shared.eventlog.port import Appended, Conflict, Duplicate, Outcome
from shared.eventlog.postgres import PostgresEventLog
from shared.eventlog.postgres_batch import APPEND_OR_QUEUE, QUEUED, arguments, encode_commit
from shared.eventlog.postgres_connection import connect
from tests.eventlog.words import commit, draft, places

TURN = "SELECT pg_advisory_xact_lock(x'746F706F61707064'::bigint)"
REQUESTS = "SELECT count(*) FROM append_request"


@pytest.fixture
async def holder(log_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Any]:
    """Yield a connection that has the turn in an open transaction, while every process shares."""
    monkeypatch.setattr(postgres_append, "SHARE_ABOVE_S", -1.0)
    connection = await connect(log_url)
    await connection.execute(f"BEGIN; {TURN}")
    yield connection
    await connection.close()


async def queued(holder: Any, requests: int) -> None:
    """Wait until so many requests are in the queue."""
    async with asyncio.timeout(60):
        while await holder.fetchval(REQUESTS) != requests:  # noqa: ASYNC110 - rows, not an event
            await asyncio.sleep(0.005)


async def append_own(holder: Any, commit_id: str) -> Any:
    """Append a commit as the process that has the turn, without the end of its transaction."""
    encoded = [encode_commit(commit(commit_id))]
    return await holder.fetchrow(APPEND_OR_QUEUE, *arguments(encoded))


async def test_whoever_has_the_turn_appends_for_all_in_one_transaction(
    log_url: str, postgres_log: PostgresEventLog, holder: Any
) -> None:
    await holder.execute("COMMIT")
    await postgres_log.append([commit("earlier", draft("a"))])
    await holder.execute(f"BEGIN; {TURN}")
    batches = [
        [commit("single", draft("a", 1))],
        [commit("earlier", draft("a"))],
        [commit("late", draft("a", 0)), commit("tied", draft("b"), follows="late")],
        [commit("pair", draft("b"), draft("c", 0)), commit("after", draft("c", 1), follows="pair")],
    ]
    logs = [await PostgresEventLog.open(log_url) for _ in batches]
    answers: list[asyncio.Task[list[Outcome]]] = []
    for number, (log, batch) in enumerate(zip(logs, batches, strict=True), 1):
        answers.append(asyncio.create_task(log.append(batch)))
        await queued(holder, number)
    row = await append_own(holder, "own")
    assert (row["outcome"], row["firsts"]) == ([0], [6])
    assert await postgres_log.head() == 1
    assert not any(answer.done() for answer in answers)
    await holder.execute("COMMIT")
    assert await asyncio.gather(*answers) == [
        [Appended(2, 2, {"a": 2})],
        [Duplicate(1, 1)],
        [Conflict("a", 0, 2), Conflict("b", -1, 0)],
        [Appended(3, 4, {"b": 1, "c": 1}), Appended(5, 5, {"c": 2})],
    ]
    assert [stream for _, stream, _ in await places(postgres_log)] == ["a", "a", "b", "c", "c", "s"]
    await queued(holder, 0)
    for log in logs:
        await log.close()


async def test_a_process_whose_request_nobody_took_appends_it_with_those_of_others(
    log_url: str, postgres_log: PostgresEventLog, holder: Any
) -> None:
    second_log = await PostgresEventLog.open(log_url)
    answers = [
        asyncio.create_task(log.append([commit(name)]))
        for log, name in ((postgres_log, "one"), (second_log, "two"))
    ]
    await queued(holder, 2)
    await holder.execute("ROLLBACK")
    assert sorted(outcome.last for (outcome,) in await asyncio.gather(*answers)) == [1, 2]  # type: ignore[union-attr]
    await queued(holder, 0)
    await second_log.close()


async def test_a_bad_request_fails_alone_and_an_abandoned_one_is_dropped(
    log_url: str, postgres_log: PostgresEventLog, holder: Any
) -> None:
    bad, old = (arguments([encode_commit(commit(name))]) for name in ("bad", "old"))
    bad[11] = [None]
    sender = await connect(log_url)
    requests = [(await sender.fetchrow(APPEND_OR_QUEUE, *given))["request"] for given in (bad, old)]
    await holder.execute(
        "UPDATE append_request SET made_at = made_at - interval '11 s' WHERE id = $1", requests[1]
    )
    waiting = asyncio.create_task(postgres_log.append([commit("good")]))
    await queued(holder, 3)
    assert (await append_own(holder, "own"))["firsts"] == [2]
    await holder.execute("COMMIT")
    assert await waiting == [Appended(1, 1, {"s": 1})]
    assert [(await sender.fetchrow(QUEUED, n))["outcome"] for n in requests] == [[], None]
    assert [event.commit_id for event in await postgres_log.read(0, 10)] == ["good", "own"]
    await sender.close()


async def test_a_request_that_was_lost_is_appended_without_the_others(
    postgres_log: PostgresEventLog, holder: Any
) -> None:
    waiting = asyncio.create_task(postgres_log.append([commit("c")]))
    await queued(holder, 1)
    await holder.execute("DELETE FROM append_request; COMMIT")
    assert await waiting == [Appended(1, 1, {"s": 1})]
    assert await postgres_log.append([commit("c")]) == [Duplicate(1, 1)]


async def test_processes_share_only_while_flushes_are_slow(
    postgres_log: PostgresEventLog, holder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_append, "SHARE_ABOVE_S", 60.0)
    assert await postgres_log.append([commit("c")]) == [Appended(1, 1, {"s": 1})]
    assert await holder.fetchval(REQUESTS) == 0
