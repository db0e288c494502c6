"""Blocks and pages are limited by bytes: many large events are never together in memory, in a file
or in a block.
"""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from services.upkeep.exporting import export
from services.upkeep.importing import import_history
from shared.eventlog import history_file, pages
from shared.eventlog import postgres_care as care
from shared.eventlog.file_log import FileLog
from shared.eventlog.history_file import Block, checked, unpack
from shared.eventlog.limits import MAX_FACT_BYTES, MAX_PAGE_BYTES
from shared.eventlog.memory import MemoryEventLog
from shared.eventlog.pages import FACT_BYTES, KeptBlocks
from shared.eventlog.port import Commit, Draft, EventLog
from shared.eventlog.postgres import PostgresEventLog
from shared.eventlog.postgres_connection import connect
from shared.eventlog.postgres_pages import SHORT_PAGE
from shared.eventlog.whole_stream import envelopes_of
from shared.events.cluster_events import PodRunning
from shared.events.envelope import Envelope
from tests.eventlog.test_life import PARTITION, archived, everything, log, relayed  # noqa: F401 - fixture

LARGE = MAX_FACT_BYTES - 100
SMALL_BLOCK = 2_000


def commit(number: int, size: int) -> Commit:
    return Commit(
        f"c{number}", "r", 0, number, (Draft(f"pod/{number % 3}", PodRunning("u", "x" * size)),)
    )


async def large(log: EventLog, count: int, size: int = LARGE) -> None:  # noqa: F811, RUF100
    for number in range(count):
        await log.append([commit(number, size)])


async def test_no_block_of_a_file_is_larger_than_its_bound_and_one_event(tmp_path: Path) -> None:
    given, file = MemoryEventLog("log-1"), tmp_path / "x.topolog.gz"
    await large(given, 12)
    await export(given, file, 1, 12)
    sizes = [
        sum(len(entry.payload) for entry in item.envelopes)
        for item in checked(file)
        if isinstance(item, Block)
    ]
    assert max(sizes) < history_file.BLOCK_BYTES + MAX_FACT_BYTES
    assert max(sizes) * 2 < history_file.LIMIT_BLOCK_BYTES
    assert await everything(FileLog.open(file)) == given._events


async def test_a_large_history_is_exported_and_read_in_bounded_memory(
    log_url: str, tmp_path: Path
) -> None:
    opened, file = await PostgresEventLog.open(log_url), tmp_path / "x.topolog.gz"
    await large(opened, 40)
    tracemalloc.start()
    await export(opened, file, 1, 40)
    result = FileLog.open(file)
    for later in range(0, 40, 5):
        await result.read(later, 5)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2 * (MAX_PAGE_BYTES + MAX_FACT_BYTES) + 2 * pages.KEPT_BYTES, "of 160 MiB"
    await opened.close()


async def test_blocks_of_the_archive_are_bounded_by_bytes(
    log: PostgresEventLog,  # noqa: F811, RUF100
    log_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(care, "BLOCK_BYTES", SMALL_BLOCK)
    earlier = await everything(log)
    await relayed(log)
    last = await archived(log_url, log)
    owner = await connect(log_url)
    blocks = [
        unpack(row["data"])
        for row in await owner.fetch("SELECT data FROM archived_block ORDER BY first")
    ]
    await owner.close()
    assert [entry for block in blocks for entry in block] == earlier[:last]
    assert len(blocks) > 2 * last // PARTITION
    assert all(sum(len(entry.payload) for entry in block[:-1]) < SMALL_BLOCK for block in blocks)
    assert await everything(log) == earlier
    assert [entry async for entry in envelopes_of(log, "report/n1")] == [
        entry for entry in earlier if entry.stream == "report/n1"
    ]


async def test_pages_of_archived_events_are_bounded_by_bytes(
    log_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, file = MemoryEventLog("log-1"), tmp_path / "x.topolog.gz"
    await large(given, 7)
    await export(given, file, 1, 7)
    await import_history(log_url, file, 1)
    partition = (await care.status(log_url)).partitions[0]
    owner = await connect(log_url)
    await owner.execute("UPDATE counter SET partition_size = 7")
    await owner.close()
    await care.archive(log_url, care.Partition(partition.name, 1, 7, 0, True))
    result = await PostgresEventLog.open(log_url)
    assert [entry.position for entry in await result.read(0)] == [1, 2, 3, 4, 5]
    assert await result.read(4) == given._events[4:]
    stream = envelopes_of(result, "pod/0")
    assert [entry.position async for entry in stream] == [1, 4, 7]
    await result.close()


async def test_masked_events_are_read_in_parts(
    log: PostgresEventLog, log_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(care, "BLOCK_BYTES", 1)
    head = await log.head()
    wanted = [1, 3, 4, head, head + 5]
    assert await care.mask(log_url, wanted, lambda _, __: b"{}") == 4
    assert [entry.position for entry in await everything(log) if entry.payload == b"{}"] == wanted[
        :-1
    ]


def test_blocks_are_kept_by_their_bytes_and_one_at_least(monkeypatch: pytest.MonkeyPatch) -> None:
    kept, made = KeptBlocks(), list[str]()
    monkeypatch.setattr(pages, "KEPT_BYTES", 3 * (100 + FACT_BYTES))

    def block(name: str, size: int = 100) -> list[Envelope]:
        def unpacked() -> list[Envelope]:
            made.append(name)
            return [Envelope(1, name, 1, "t", 1, b"x" * size, 0, "r", 0, "c")]

        return kept.get(name, unpacked)

    for name in "abcadb":
        assert block(name)[0].stream == name
    assert made == ["a", "b", "c", "d", "b"], "b was the one asked for longest ago"
    assert len(block("huge", 10_000)[0].payload) == 10_000
    block("huge")
    block("d")
    assert made[5:] == ["huge", "d"]


async def test_every_page_goes_on_after_its_position_whatever_the_sizes(
    postgres_log: PostgresEventLog,
) -> None:
    """Few new events are read as plain rows, in which a large event is missing."""
    sizes = [1, MAX_PAGE_BYTES // SHORT_PAGE, 1, 1, LARGE, 1, *([1] * SHORT_PAGE), LARGE, LARGE, 1]
    for number, size in enumerate(sizes):
        await postgres_log.append([commit(number, size)])
        for position in range(max(0, number - 3), number + 1):
            page = await postgres_log.read(position)
            positions = [envelope.position for envelope in page]
            assert positions == list(range(position + 1, number + 2))
    for position in range(len(sizes)):
        page = await postgres_log.read(position, SHORT_PAGE)
        positions = [envelope.position for envelope in page]
        assert positions[:1] == [position + 1]
        assert positions == list(range(position + 1, position + 1 + len(page)))
