"""A history in a file: reads like the log it came from, and every cut, flipped bit or foreign line
is reported, never read past.
"""

from __future__ import annotations

import gzip
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.upkeep.exporting import export
from shared.eventlog import history_file
from shared.eventlog.errors import LogUnavailable
from shared.eventlog.file_log import FileLog
from shared.eventlog.history_file import Block, HistoryFileError, checked
from shared.eventlog.memory import MemoryEventLog
from shared.eventlog.port import Commit, Draft
from shared.events.binding_events import PodBound
from shared.events.cluster_events import PodObserved
from shared.events.envelope import Envelope
from tests.fixtures.examples import examples
from tests.ledger.given import pod

FACTS = 25


async def a_log() -> MemoryEventLog:
    log = MemoryEventLog("log-1")
    for number in range(FACTS):
        event = (
            PodObserved(pod(f"p{number}", cpus=1))
            if number % 2
            else PodBound(f"uid-p{number}", f"n\u2028{number}\n")
        )
        await log.append(
            [Commit(f"c{number}", "test", 0, number, (Draft(f"pod/{number % 3}", event),))]
        )
    return log


@pytest.fixture
async def exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(history_file, "BLOCK_FACTS", 7)
    file = tmp_path / "all.topolog.gz"
    await export(await a_log(), file, 1, FACTS)
    return file


async def test_a_file_answers_every_question_of_a_reader_as_the_log_does(exported: Path) -> None:
    log, result = await a_log(), FileLog.open(exported)
    assert await result.identity() == await log.identity()
    assert await result.head() == FACTS
    for later in range(FACTS + 2):
        assert await result.read(later, 5) == await log.read(later, 5)
    for stream in ("pod/0", "pod/1", "pod/2", "pod/9"):
        assert await result.versions([stream]) == await log.versions([stream])
        for version in range(12):
            assert await result.read_stream(stream, version, 3) == await log.read_stream(
                stream, version, 3
            )
    with pytest.raises(LogUnavailable, match="is read-only"):
        await result.append([])


async def test_files_of_a_folder_continue_each_other_and_a_gap_is_reported(tmp_path: Path) -> None:
    log, folder = await a_log(), tmp_path / "archive"
    for first, last in ((1, 10), (11, 20), (21, FACTS)):
        await export(log, folder / f"{first:06}.topolog.gz", first, last)
    assert await FileLog.open(folder).read(0, 100) == await log.read(0, 100)
    (folder / "000011.topolog.gz").unlink()
    with pytest.raises(HistoryFileError, match="does not continue the file that ends at 10"):
        FileLog.open(folder)


async def test_people_can_read_it(exported: Path) -> None:
    lines = [
        msgspec.json.decode(line) for line in gzip.decompress(exported.read_bytes()).splitlines()
    ]
    assert lines[0]["format"] == "topolog-history"
    assert lines[2]["payload"]["pod"]["name"] == "p1"
    assert lines[-1]["facts"] == FACTS


@settings(max_examples=examples(60), deadline=None)
@given(data=st.data())
def test_no_damage_goes_unnoticed(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    whole = _whole(tmp_path_factory)
    damaged = bytearray(whole)
    position = data.draw(st.integers(0, len(whole) - 1))
    damaged[position] ^= data.draw(st.integers(1, 255))
    cut = data.draw(st.sampled_from([len(whole), position]))
    file = tmp_path_factory.mktemp("damaged") / "x.topolog.gz"
    file.write_bytes(bytes(damaged[:cut]))
    try:
        events = [
            event for item in checked(file) if isinstance(item, Block) for event in item.envelopes
        ]
    except HistoryFileError:
        return
    file.write_bytes(whole)  # The flipped bit is in a gzip header field that no reader uses.
    assert events == [
        event for item in checked(file) if isinstance(item, Block) for event in item.envelopes
    ]


_made: list[bytes] = []


def _whole(factory: pytest.TempPathFactory) -> bytes:
    if not _made:
        import asyncio

        file = factory.mktemp("whole") / "x.topolog.gz"

        async def write() -> None:
            await export(await a_log(), file, 1, FACTS)

        asyncio.run(write())
        _made.append(file.read_bytes())
    return _made[0]


async def test_a_row_that_was_altered_before_its_export_is_reported(tmp_path: Path) -> None:
    log = await a_log()
    log._events[9] = msgspec.structs.replace(
        log._events[9], payload=b'{"type":"PodBound","uid":"u","node":"other"}'
    )
    await export(log, tmp_path / "x.topolog.gz", 1, FACTS)
    with pytest.raises(HistoryFileError, match="position 10 differs from what was appended"):
        FileLog.open(tmp_path / "x.topolog.gz")


async def test_an_interrupted_export_leaves_the_file_as_it_was(exported: Path) -> None:
    earlier = exported.read_bytes()

    class Breaks(MemoryEventLog):
        async def read(self, later: int, limit: int = 1000) -> list[Envelope]:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await export(Breaks(), exported, 1, FACTS)
    assert exported.read_bytes() == earlier


async def test_a_file_that_is_no_history_is_rejected_as_such(tmp_path: Path) -> None:
    file = tmp_path / "x.topolog.gz"
    for content in (
        b"",
        b"plain text",
        gzip.compress(b'{"format":"else","log_id":"l","timeline":1,"first":1,"last":0}\n'),
    ):
        file.write_bytes(content)
        with pytest.raises(HistoryFileError):
            FileLog.open(file)
    file.write_bytes(
        gzip.compress(
            b'{"format":"topolog-history","version":99,"log_id":"","timeline":1,"first":1,"last":0}\n'
        )
    )
    with pytest.raises(HistoryFileError, match="newer release"):
        FileLog.open(file)
