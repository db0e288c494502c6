"""Histories that no log wrote, whole by hash and chain: refused with file, position and remedy, and
the log stays empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from services.upkeep.errors import UpkeepRefused
from services.upkeep.importing import import_history
from shared.eventlog.chain import BEGINNING, linked
from shared.eventlog.file_log import FileLog
from shared.eventlog.history_file import Header, HistoryFileError, Writer
from shared.eventlog.limits import MAX_FACT_BYTES
from shared.eventlog.postgres import PostgresEventLog
from shared.events.codec import encode
from shared.events.envelope import Envelope
from shared.events.log_events import FactSkipped
from tests.eventlog.test_history_files import FACTS, a_log

AT = 10
HUGE = 10**40


def written(file: Path, events: Sequence[Envelope], **header: Any) -> Path:
    """Write a file with a valid hash and chain, whatever its events are."""
    chain, chained = BEGINNING, list[Envelope]()
    for event in events:
        chain = linked(chain, event)
        chained.append(
            event if event.chain == b"short" else msgspec.structs.replace(event, chain=chain)
        )
    with file.open("wb") as opened:
        writer = Writer(
            opened,
            msgspec.structs.replace(
                Header(log_id="log-1", timeline=1, first=1, last=len(events)), **header
            ),
        )
        writer.add(chained)
        writer.end()
    return file


async def changed(position: int = AT, **values: Any) -> list[Envelope]:
    """Return a history in which one event has another value."""
    events = (await a_log())._events
    events[position - 1] = msgspec.structs.replace(events[position - 1], **values)
    return events


async def refused(url: str, file: Path) -> UpkeepRefused:
    """Return why the file is not imported, and check that nothing of it remains."""
    with pytest.raises(UpkeepRefused) as received:
        await import_history(url, file, 1)
    log = await PostgresEventLog.open(url)
    assert (await log.head(), (await log.identity()).timeline) == (0, 1)
    await log.close()
    assert str(file) in received.value.problem
    assert len(received.value.problem) < 500
    return received.value


@pytest.mark.parametrize("version", [1, 2, 5, 99])
async def test_versions_of_a_stream_have_no_gap_and_do_not_come_twice(
    tmp_path: Path, log_url: str, version: int
) -> None:
    received = await refused(
        log_url, written(tmp_path / "x.topolog.gz", await changed(version=version))
    )
    assert f"at position {AT}, pod/0 has version {version}, expected version 4" in received.problem
    assert received.remedy == "import another copy of it"


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"version": 0}, "its version is 0"),
        ({"version": HUGE}, "its version is a number of very many digits"),
        ({"schema": 1 << 31}, "its schema is"),
        ({"time_us": -1}, "its time_us is -1"),
        ({"time_us": 1 << 62}, "its time_us is"),
        ({"epoch": (1 << 63) - 1}, "its epoch is"),
        ({"causation": -5}, "its causation is -5"),
        ({"stream": ""}, "its stream has 0 characters"),
        ({"stream": "s" * 10_000}, "its stream has 10000 characters"),
        ({"stream": "pod/\x00"}, "its stream contains the character 0"),
        ({"commit_id": ""}, "its commit_id has 0 characters"),
        ({"role": ""}, "it has no role"),
        ({"trace": "a\x00"}, "its trace contains the character 0"),
        ({"payload": b"x" * (2 * MAX_FACT_BYTES + 1)}, "its payload has"),
        ({"chain": b"short"}, "its chain is not a SHA-256"),
    ],
)
async def test_values_that_no_log_accepts_are_reported_with_their_position(
    tmp_path: Path, log_url: str, values: dict[str, Any], said: str
) -> None:
    file = written(tmp_path / "x.topolog.gz", await changed(**values))
    received = await refused(log_url, file)
    assert f"the log would reject the event at position {AT}: {said}" in received.problem
    with pytest.raises(HistoryFileError, match=f"at position {AT}"):
        FileLog.open(file)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"type": "PodTeleported"}, "PodTeleported is not a kind of event that this release knows"),
        ({"schema": 77}, "has schema 77; this release knows 1 to 1"),
    ],
)
async def test_kinds_of_events_that_only_another_release_knows_are_for_it(
    tmp_path: Path, log_url: str, values: dict[str, Any], said: str
) -> None:
    events = await changed(**values)
    received = await refused(log_url, written(tmp_path / "x.topolog.gz", events))
    assert f"at position {AT}, " in received.problem
    assert said in received.problem
    assert "by the release that wrote it" in received.remedy
    payload = encode(FactSkipped(AT, "pod/0", "me", "asked"))
    word = Envelope(FACTS + 1, "log", 1, "FactSkipped", 1, payload, 1, "operator", 0, "skip")
    assert (
        await import_history(log_url, written(tmp_path / "y.topolog.gz", [*events, word]), 1)
    ).last == FACTS + 1


async def test_what_this_release_need_not_know_or_cannot_read_is_taken_as_the_log_had_it(
    tmp_path: Path, log_url: str
) -> None:
    events = await changed(FACTS, stream="moon/1", version=1, type="MoonRose")
    events[AT - 1] = msgspec.structs.replace(
        events[AT - 1], payload=b'{"type":"PodObserved","pod":7}'
    )
    assert (
        await import_history(log_url, written(tmp_path / "x.topolog.gz", events), 1)
    ).last == FACTS


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ({"log_id": ""}, "has no log id"),
        ({"log_id": "a\x00"}, "has no log id"),
        ({"timeline": 0}, "timeline 0"),
        ({"timeline": HUGE}, "timeline a number of very many digits"),
        ({"last": HUGE}, "has the range 1 to a number"),
        ({"last": 1 << 62}, "has the range 1 to"),
        ({"last": -1}, "has the range 1 to -1"),
        ({"before": "zz"}, "an invalid hash before the first event"),
        ({"checkpoints": {"relay": 10_000}}, "a consumer at position 10000"),
        ({"checkpoints": {"\x00": 1}}, "a consumer at position 1"),
        ({"version": HUGE}, "newer release (format a number"),
        ({"last": FACTS + 1}, "was cut"),
        ({"last": FACTS - 1}, "was cut"),
        ({"last": 10**15}, "was cut"),
    ],
)
async def test_headers_that_no_release_wrote_are_reported(
    tmp_path: Path, log_url: str, header: dict[str, Any], said: str
) -> None:
    file = written(tmp_path / "x.topolog.gz", (await a_log())._events, **header)
    assert said in (await refused(log_url, file)).problem
    with pytest.raises(HistoryFileError):
        FileLog.open(file)
