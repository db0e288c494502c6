"""A redacted history that ends before the event of its redaction is still complete when it is read,
imported or exported again.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from services.replay.commands import verify
from services.upkeep.errors import UpkeepRefused
from services.upkeep.exporting import export
from services.upkeep.importing import import_history
from shared.eventlog.file_log import FileLog
from shared.eventlog.history_file import Header, HistoryFileError, Writer, header_of
from shared.eventlog.memory import MemoryEventLog
from shared.eventlog.postgres import PostgresEventLog
from shared.eventlog.redactions import redactions
from shared.events.envelope import Envelope
from tests.eventlog.test_redacting import HISTORY, a_log, redacted

FACTS = sum(map(len, HISTORY))


@pytest.fixture
async def log() -> MemoryEventLog:
    """Return a redacted log. The redaction is after the positions of FACTS."""
    made = await a_log()
    await redacted(made, "web-0")
    return made


@pytest.fixture
async def cut(log: MemoryEventLog, tmp_path: Path) -> Path:
    """Return the part of the history before the event of the redaction."""
    await export(log, tmp_path / "cut.topolog.gz", 1, FACTS)
    return tmp_path / "cut.topolog.gz"


async def test_it_is_read_as_whole(log: MemoryEventLog, cut: Path) -> None:
    result = FileLog.open(cut)
    assert await redactions(result) == await redactions(log)
    verdict = await verify(result, [])
    assert (verdict.ok, verdict.positions, verdict.violations) == (True, FACTS, [])


async def test_it_is_exported_again_as_whole(cut: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.topolog.gz"
    await export(FileLog.open(cut), again, 1, FACTS)
    assert (await verify(FileLog.open(again), [])).ok
    assert header_of(again).redacted == header_of(cut).redacted != {}


async def test_a_folder_of_pieces_is_read_as_whole(log: MemoryEventLog, tmp_path: Path) -> None:
    for first, last in ((1, 9), (10, 20), (21, FACTS)):
        await export(log, tmp_path / "pieces" / f"{first:03}.topolog.gz", first, last)
    assert (await verify(FileLog.open(tmp_path / "pieces"), [])).ok
    received = header_of(tmp_path / "pieces" / "010.topolog.gz").redacted
    assert min(received) >= 10, "a piece says what it holds"
    assert max(received) <= 20, "and no more"


async def test_it_is_imported_and_the_new_log_says_what_was_masked(cut: Path, log_url: str) -> None:
    done = await import_history(log_url, cut, 1)
    log = await PostgresEventLog.open(log_url)
    assert await redactions(log) == header_of(cut).redacted
    verdict = await verify(log, [])
    assert (verdict.ok, verdict.violations, done.last) == (True, [], FACTS)
    await log.close()


async def test_redactions_that_the_history_contains_are_not_repeated_in_the_header(
    log: MemoryEventLog, tmp_path: Path, log_url: str
) -> None:
    file = tmp_path / "all.topolog.gz"
    await export(log, file, 1, await log.head())
    await import_history(log_url, file, 1)
    result = await PostgresEventLog.open(log_url)
    assert await result.head() == await log.head() + 1, "the new timeline alone"
    assert (await verify(result, [])).ok
    await result.close()


async def test_an_altered_row_that_no_header_names_is_still_reported(
    log: MemoryEventLog, tmp_path: Path
) -> None:
    log._events[0] = msgspec.structs.replace(
        log._events[0], payload=log._events[0].payload.replace(b"n1", b"n2")
    )
    await export(log, tmp_path / "x.topolog.gz", 1, FACTS)
    with pytest.raises(HistoryFileError, match="position 1 differs from what was appended"):
        FileLog.open(tmp_path / "x.topolog.gz")


async def test_an_export_during_a_redaction_is_refused(tmp_path: Path) -> None:
    class Redacting(MemoryEventLog):
        begun = False

        async def read(self, later: int, limit: int = 1000) -> list[Envelope]:
            result = await super().read(later, limit)
            if not self.begun:
                self.begun = True
                await redacted(self, "web-0")
            return result

    log = Redacting("log-1")
    for item in (await a_log())._events:
        log._events.append(item)
    with pytest.raises(UpkeepRefused, match="redacted during"):
        await export(log, tmp_path / "x.topolog.gz", 1, FACTS)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("digest", ["", "xyz", "ab", "é" * 64, "g" * 64])
async def test_a_header_without_a_hash_is_reported(tmp_path: Path, digest: str) -> None:
    file = tmp_path / "x.topolog.gz"
    with file.open("wb") as opened:
        Writer(opened, Header(log_id="l", timeline=1, first=1, last=0, redacted={1: digest})).end()
    with pytest.raises(HistoryFileError, match="its header has an invalid hash for position 1"):
        FileLog.open(file)
