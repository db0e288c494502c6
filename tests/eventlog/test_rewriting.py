"""Rewrites of a history (archive, redaction, import) run alone and hold little of it at
once.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import msgspec
import pytest

from services.replay.commands import verify
from services.upkeep import archiving
from services.upkeep.archiving import Limits, due
from services.upkeep.redacting import redact
from shared.eventlog import postgres_care as care
from shared.eventlog import postgres_pages
from shared.eventlog.errors import LogBusy, LogUnavailable
from shared.eventlog.history_file import pack
from shared.eventlog.port import Commit, Draft
from shared.eventlog.postgres import PostgresEventLog
from shared.eventlog.postgres_connection import SERVER_SETTINGS, connect
from shared.events.envelope import Envelope
from shared.events.report_events import NodeReportChanged
from tests.eventlog.test_life import BEGIN_US, PARTITION, everything, log, relayed  # noqa: F401 - fixture

BLOCK = 5
LOOKS, LOOK_S = 500, 0.02


class Tracked(Envelope, frozen=True, gc=True, weakref=True):
    """An envelope with an observable lifetime."""


async def first_due(url: str) -> care.Partition:
    return due(await care.status(url), Limits(), BEGIN_US)[0]


async def test_an_archive_holds_two_blocks_of_a_partition_at_once_and_no_more(
    log: PostgresEventLog,  # noqa: F811, RUF100
    log_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await relayed(log)
    earlier = await everything(log)
    alive: list[weakref.ref[Any]] = []
    most = []

    def tracked(*columns: Any) -> Envelope:
        tracked_log = Tracked(*columns)
        alive.append(weakref.ref(tracked_log))
        return tracked_log

    def packed(block: list[Envelope]) -> bytes:
        most.append(sum(item() is not None for item in alive))
        return pack(block)

    monkeypatch.setattr(care, "BLOCK_FACTS", BLOCK)
    monkeypatch.setattr(care, "pack", packed)
    with monkeypatch.context() as reading:
        reading.setattr(postgres_pages, "Envelope", tracked)
        await care.archive(log_url, await first_due(log_url))
    assert (len(alive), len(most)) == (PARTITION, PARTITION // BLOCK)
    assert max(most) <= 2 * BLOCK
    assert await everything(log) == earlier


async def waits(url: str) -> None:
    """Wait until some connection to this database waits for a lock."""
    owner = await connect(url)
    asked = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND "
        "wait_event_type = 'Lock'"
    )
    for _ in range(LOOKS):
        if await owner.fetchval(asked):
            break
        await asyncio.sleep(LOOK_S)
    await owner.close()


def lent(monkeypatch: pytest.MonkeyPatch, name: str) -> tuple[asyncio.Event, asyncio.Event]:
    """Let `care.<name>`, a coroutine or an asynchronous generator, stop before its end. Return two
    events: it has stopped, and it may continue.
    """
    real, existing_there, go_on = getattr(care, name), asyncio.Event(), asyncio.Event()

    async def stops() -> None:
        existing_there.set()
        await go_on.wait()

    async def coroutine(*arguments: Any) -> Any:
        done = await real(*arguments)
        await stops()
        return done

    async def generator(*arguments: Any) -> Any:
        async for item in real(*arguments):
            yield item
        await stops()

    monkeypatch.setattr(care, name, generator if name == "_blocks" else coroutine)
    return existing_there, go_on


@pytest.mark.parametrize("first", ["archive", "redaction"])
async def test_a_redaction_and_an_archive_wait_for_each_other_and_what_was_masked_stays_so(
    log: PostgresEventLog,  # noqa: F811, RUF100
    log_url: str,
    monkeypatch: pytest.MonkeyPatch,
    first: str,
) -> None:
    await relayed(log)
    partition = await first_due(log_url)
    works: dict[str, Callable[[], Coroutine[Any, Any, Any]]] = {
        "archive": lambda: care.archive(log_url, partition),
        "redaction": lambda: redact(log, "alice-3", "me", "asked", 1, partial(care.mask, log_url)),
    }
    existing_there, go_on = lent(monkeypatch, "_blocks" if first == "archive" else "_mask_archived")
    first_one = asyncio.ensure_future(works.pop(first)())
    await existing_there.wait()
    (second,) = (asyncio.ensure_future(work()) for work in works.values())
    waiting = asyncio.create_task(waits(log_url))
    await asyncio.wait([second, waiting], return_when=asyncio.FIRST_COMPLETED)
    go_on.set()
    await asyncio.gather(first_one, second)
    await waiting
    await shows_no_more(log_url, b'"alice-3"', b'ns/alice-3"')


async def test_two_redactions_of_one_event_at_once_are_both_done(
    log: PostgresEventLog,  # noqa: F811, RUF100
    log_url: str,
) -> None:
    read_by_both = asyncio.Barrier(2)

    async def mask(positions: Any, masked: Callable[[str, bytes], bytes | None]) -> int:
        await read_by_both.wait()
        return await care.mask(log_url, positions, masked)

    both = NodeReportChanged(
        "n1", "boot-1", 1000, available={1: {"cpu": 8000}}, unlisted=("ns/alice-3", "ns/alice-5")
    )
    await log.append([Commit("both", "test", 0, 1, (Draft("report/n1", both),))])
    await asyncio.gather(
        *(redact(log, pod, "me", "asked", 1, mask) for pod in ("alice-3", "alice-5"))
    )
    await shows_no_more(log_url, b'"alice-3"', b'ns/alice-3"', b'"alice-5"', b'ns/alice-5"')


async def shows_no_more(url: str, *texts: bytes) -> None:
    fresh = await PostgresEventLog.open(url)
    assert [
        row.position
        for row in await everything(fresh)
        if any(text in row.payload for text in texts)
    ] == []
    await fresh.close()


async def test_two_archives_at_once_archive_a_partition_once(
    log: PostgresEventLog,  # noqa: F811, RUF100
    log_url: str,
) -> None:
    await relayed(log)
    earlier, partition = await everything(log), await first_due(log_url)
    await asyncio.gather(*(care.archive(log_url, partition) for _ in range(2)))
    assert await everything(log) == earlier
    assert (await verify(log, [])).ok


async def test_a_command_that_waits_too_long_for_another_says_what_to_do_and_changes_nothing(
    log: PostgresEventLog,  # noqa: F811, RUF100
    log_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(care, "_REWRITE_WAIT_S", 0.05)
    await relayed(log)
    partition = await first_due(log_url)
    existing_there, go_on = lent(monkeypatch, "_blocks")
    archiving_ = asyncio.create_task(care.archive(log_url, partition))
    await existing_there.wait()
    with pytest.raises(LogBusy, match=r"another archive, redaction or import .*; try again"):
        await care.mask(log_url, [1], lambda *_: b"{}")
    go_on.set()
    await archiving_
    assert (await verify(log, [])).ok


async def test_a_dump_that_reads_meanwhile_is_named_and_not_waited_for_long(
    log: PostgresEventLog,  # noqa: F811, RUF100
    log_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(SERVER_SETTINGS, "lock_timeout", "50ms")
    await relayed(log)
    partition, dump = await first_due(log_url), await connect(log_url)
    async with dump.transaction():
        await dump.execute("LOCK TABLE fact IN ACCESS SHARE MODE")
        with pytest.raises(LogBusy, match="a long transaction"):
            await care.archive(log_url, partition)
    await dump.close()
    assert (await care.status(log_url)).archived_to == 0
    await care.archive(log_url, partition)


async def test_a_partition_that_lacks_events_is_not_archived(
    log: PostgresEventLog, log_url: str
) -> None:
    await relayed(log)
    partition = msgspec.structs.replace(await first_due(log_url), last=10_000)
    with pytest.raises(LogUnavailable, match="lacks events"):
        await archiving.archive(log, [partition], None, partial(care.archive, log_url))
    assert (await care.status(log_url)).archived_to == 0
