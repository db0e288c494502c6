"""The promises of every event log about timelines: a part of its contract (`contract.py`)."""

from __future__ import annotations

import pytest

from shared.eventlog.port import EventLog, Fenced, Lost
from shared.events.codec import decode
from shared.events.log_events import LogOpened
from tests.eventlog.words import commit, given, place


class TimelineContract:
    """The contract of timelines. An operator begins one, or a reader that had read events which are
    lost.
    """

    async def test_the_identity_stays_and_a_new_timeline_is_counted(self, log: EventLog) -> None:
        earlier = await log.identity()
        assert await log.identity() == earlier
        later = await log.begin_timeline(7)
        assert (later.log_id, later.timeline) == (earlier.log_id, earlier.timeline + 1)
        assert await log.identity() == later

    async def test_a_new_timeline_ends_leases_and_fences_earlier_writers(
        self, log: EventLog
    ) -> None:
        old = await log.acquire("role", "me", 30)
        assert old is not None
        await log.begin_timeline(7)
        outcomes = await log.append([commit("a", role="role", epoch=old.epoch)])
        assert isinstance(outcomes[0], Fenced)
        new = await log.acquire("role", "you", 30)
        assert new is not None
        assert new.epoch > old.epoch

    async def test_a_timeline_begins_with_the_event_that_it_does(self, log: EventLog) -> None:
        await given(log, "a")
        begun = await log.begin_timeline(7)
        (opened,) = await log.read(1)
        assert (decode(opened), opened.time_us, opened.role) == (
            LogOpened(begun.log_id, begun.timeline),
            7,
            "operator",
        )

    async def test_a_reader_that_lost_what_it_had_begins_a_timeline_once(
        self, log: EventLog
    ) -> None:
        await given(log, "a", "b")
        earlier = await log.identity()
        old = await log.acquire("role", "me", 30)
        assert old is not None
        lost = Lost(earlier.timeline, earlier.timeline, 9, b"chain of nine")
        begun = await log.begin_timeline(7, lost)
        assert begun.timeline == earlier.timeline + 1
        assert await log.begin_timeline(8, lost) == begun, "another reader that noticed the same"
        (opened,) = await log.read(2)
        assert (decode(opened), opened.role) == (
            LogOpened(begun.log_id, begun.timeline, 9),
            "reader",
        )
        assert isinstance(
            (await log.append([commit("a", role="role", epoch=old.epoch)]))[0], Fenced
        )

    async def test_what_a_reader_had_is_looked_for_before_a_timeline_begins(
        self, log: EventLog
    ) -> None:
        await log.append([commit("one"), commit("two")])
        current_place, earlier = await place(log, 2), await log.identity()
        kept = [
            Lost(earlier.timeline, earlier.timeline, 2, current_place.chain),
            Lost(earlier.timeline, earlier.timeline, 2),
            Lost(earlier.timeline, earlier.timeline, 2, commit_id="two"),
        ]
        for lost in [*kept, Lost(earlier.timeline + 1, 0, 9)]:
            assert await log.begin_timeline(7, lost) == earlier
        assert await log.head() == 2

    @pytest.mark.parametrize(
        "lost",
        [
            Lost(1, 1, 2, b"another"),
            Lost(1, 1, 2, commit_id="another"),
            Lost(1, 1, 3),
            Lost(1, 0, 3),
        ],
    )
    async def test_another_history_lacks_what_a_reader_had(self, log: EventLog, lost: Lost) -> None:
        await log.append([commit("one"), commit("two")])
        assert (await log.begin_timeline(7, lost)).timeline == 2

    async def test_a_timeline_that_a_reader_had_followed_is_not_begun_again(
        self, log: EventLog
    ) -> None:
        await given(log, "a")
        current_place = await place(log, 1)
        assert (await log.begin_timeline(7, Lost(1, 4, 1, current_place.chain))).timeline == 5
