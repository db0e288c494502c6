"""`replay log` reads only the streams that a filter names, and shows what a read of the whole log
would.
"""

from __future__ import annotations

from typing import Any

import pytest

from services.replay import listing, reading
from services.replay.filters import Filter
from services.replay.listing import Listing, list_events
from shared.eventlog.memory import MemoryEventLog
from shared.eventlog.port import Commit, Draft
from shared.events.catalog import Event
from shared.events.cluster_events import PodEnded, PodObserved, PodRunning
from tests.ledger.given import pod


async def a_log() -> MemoryEventLog:
    log = MemoryEventLog()
    for number in range(6):
        pod_spec = pod(f"web-{number % 3}", cpus=1)
        uid, stream = f"u{number}", f"pod/u{number}"
        events: list[Event] = [
            PodObserved(pod_spec),
            PodRunning(uid, "n1"),
            PodEnded(uid, "succeeded", "n1"),
        ]
        drafts = tuple(Draft(stream, event) for event in events)
        await log.append([Commit(f"c{number}", "test", 0, number, drafts)])
    return log


async def listed(log: MemoryEventLog, asked: Listing) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    await list_events(log, asked, rows.append)
    return rows


@pytest.mark.parametrize("first", [1, 5])
@pytest.mark.parametrize("last", [None, 14])
@pytest.mark.parametrize("limit", [2, 100])
@pytest.mark.parametrize(
    "wanted",
    [
        Filter(stream="pod/u3"),
        Filter(stream="pod/u3", type="Pod[RE]*"),
        Filter(uids=frozenset({"u1", "u4"})),
        Filter(uids=frozenset({"u1", "u4"}), stream="pod/u?"),
        Filter(stream="pod/no"),
    ],
)
async def test_named_streams_are_read_instead_of_the_log_and_show_the_same(
    wanted: Filter, first: int, last: int | None, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await a_log()
    asked = Listing(wanted, first, last, limit=limit)
    monkeypatch.setattr(Filter, "streams", lambda _: None)
    whole = await listed(log, asked)
    monkeypatch.undo()
    monkeypatch.setattr(reading, "envelopes", _must_not_be_read)
    assert await listed(log, asked) == whole


async def _must_not_be_read(*_: object) -> None:
    raise AssertionError("the whole log was read")


async def test_following_one_stream_shows_what_comes_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = await a_log()
    monkeypatch.setattr(listing, "FOLLOW_WAIT_S", 0.01)
    positions: list[int] = []

    class Enough(Exception):
        pass

    async def append_once(after: int, timeout_s: float) -> bool:
        if len(positions) == 4:
            raise Enough
        await log.append(
            [Commit("later", "test", 0, 9, (Draft("pod/u3", PodRunning("u3", "n2")),))]
        )
        return True

    monkeypatch.setattr(log, "wait", append_once)
    asked = Listing(Filter(stream="pod/u3"), follow=True)
    with pytest.raises(Enough):
        await list_events(log, asked, lambda row: positions.append(row["position"]))
    assert positions == [10, 11, 12, 19]
