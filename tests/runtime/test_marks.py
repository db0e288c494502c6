"""Two folds of one log are compared at a position of both: one release that folds two ways fails,
another release waits.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations_with_replacement
from typing import Any

import pytest

from shared.eventlog.memory import MemoryEventLog
from shared.events.catalog import Event
from shared.events.envelope import Envelope
from shared.runtime import marks
from shared.runtime.health import Health
from shared.runtime.marks import Differs, Promises
from shared.runtime.projector import Fold, Projector
from tests.eventlog.words import given
from tests.runtime.helpers import QUICK, FaultyLog, running, undecodable, until

State = dict[str, int]


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marks, "EVERY_FACTS", 4)


def fold(code: str, worth: int = 1) -> Fold[State]:
    """Return a fold whose charges are `worth` for each event of a stream."""

    def evolve(state: State, envelope: Envelope, _event: Event) -> None:
        state[envelope.stream] = state.get(envelope.stream, 0) + worth

    return Fold(
        dict,
        evolve,
        code,
        promises=Promises(
            lambda state: (repr(item).encode() for item in sorted(state.items())), len
        ),
    )


class Replica:
    def __init__(self, log: MemoryEventLog, fold: Fold[State], differs: Differs = "wait") -> None:
        self.health, self.seen = Health(), list[tuple[int, ...]]()
        self.projector = Projector(
            "p", log, fold, after=self._after, health=self.health, differs=differs, options=QUICK
        )

    def _after(self, _state: State, folded: Any) -> None:
        self.seen.append(tuple(envelope.position for envelope, _ in folded))

    async def reaches(self, position: int) -> None:
        await self.projector.wait_live()
        assert await self.projector.wait_for(position, 60)


async def at_work(log: MemoryEventLog, code: str = "blue") -> None:
    """Run a release that follows the log live over twelve events."""
    replica = Replica(log, fold(code))
    async with running(replica.projector.run()):
        await replica.projector.wait_live()
        await given(log, *"abababababab")
        await replica.reaches(12)
        await until(lambda: replica.health.status().ready)


async def positions(log: MemoryEventLog, code: str) -> list[int]:
    return [mark.place.position for mark in await log.marks("p") if mark.fingerprint == f"{code}/"]


async def test_marks_are_made_live_at_even_places_and_hearers_know_every_event_once() -> None:
    log = MemoryEventLog("l")
    replica = Replica(log, fold("blue"))
    async with running(replica.projector.run()):
        await replica.projector.wait_live()
        await given(log, *"abababababab")
        await replica.reaches(12)
        await until(lambda: replica.projector.position == 12)
    assert [position for page in replica.seen for position in page] == list(range(1, 13))
    assert set(await positions(log, "blue")) <= {4, 8, 12}
    assert 8 in await positions(log, "blue")


async def test_another_release_that_promises_the_same_is_ready_and_has_compared() -> None:
    log = MemoryEventLog("l")
    await at_work(log)
    green = Replica(log, fold("green"))
    async with running(green.projector.run()):
        await green.reaches(12)
        await until(lambda: green.health.status().ready)
    assert await positions(log, "green") == await positions(log, "blue"), (
        "it made its marks where the other did"
    )


async def test_a_release_that_charges_differently_waits_until_it_is_let_go() -> None:
    log = MemoryEventLog("l")
    await at_work(log)
    green = Replica(log, fold("green", worth=2))
    async with running(green.projector.run()):
        await green.reaches(12)
        waits = green.health.status()
        assert waits.healthy
        (problem,) = waits.waiting.values()
        assert "the release blue" in problem
        assert "TOPOLOG_FOLD_DIFFERS=go" in problem
    received = Replica(log, fold("green", worth=2), "go")
    async with running(received.projector.run()):
        await received.reaches(12)
        await until(lambda: received.health.status().ready)


async def test_the_release_at_work_goes_on_whatever_starts_next_to_it() -> None:
    log = MemoryEventLog("l")
    blue, green = Replica(log, fold("blue")), Replica(log, fold("green", worth=2), "go")
    async with running(green.projector.run(), blue.projector.run()):
        await blue.projector.wait_live()
        await green.projector.wait_live()
        await given(log, *"abababab")
        await blue.reaches(8)
        await green.reaches(8)
        await until(lambda: blue.health.status().ready and green.health.status().ready)


async def test_one_release_that_folds_two_ways_is_red() -> None:
    log = MemoryEventLog("l")
    await at_work(log)
    twin = Replica(log, fold("blue", worth=2))
    async with running(twin.projector.run()):
        await twin.reaches(12)
        await until(lambda: not twin.health.status().healthy)
    assert "another of the same release" in str(twin.health.status().red)


async def test_a_restored_log_is_another_history_whose_marks_are_not_compared() -> None:
    log = FaultyLog()
    await at_work(log)
    log.restore(5)
    await given(log, *"ccccccc")
    green = Replica(log, fold("green", worth=2))
    async with running(green.projector.run()):
        await green.reaches(12)
        assert [
            mark.place.position for mark in await log.marks("p") if mark.place.position > 5
        ] == []


async def test_a_fold_that_set_a_stream_aside_makes_no_marks() -> None:
    log = FaultyLog()
    await at_work(log)
    log.damage = undecodable(3)
    green = Replica(log, fold("green"))
    async with running(green.projector.run()):
        await green.reaches(12)
    assert await positions(log, "green") == []


def test_a_large_state_makes_marks_more_rarely() -> None:
    def pieces(_state: int) -> Iterator[bytes]:
        yield b""

    own_marks = marks.Marks(
        "p", "f", Promises(pieces, lambda state: state), MemoryEventLog("l"), Health()
    )
    every = {
        pods: next(
            index_at for index_at in range(1, 10_000) if own_marks.due(pods, index_at, live=True)
        )
        for pods in (0, 4_000, 150_000)
    }
    assert every == {0: 4, 4_000: 8, 150_000: 256}
    assert not own_marks.due(0, 4, live=False)


@pytest.mark.parametrize("awaited", [set(), {5}, {3, 8}], ids=str)
@pytest.mark.parametrize("live", [True, False])
def test_no_place_of_a_mark_is_passed_over(live: bool, awaited: set[int]) -> None:
    own_marks = marks.Marks(
        "p", "f", Promises(lambda _state: (), lambda state: state), MemoryEventLog("l"), Health()
    )
    own_marks._awaited = awaited
    for first, last in combinations_with_replacement(range(1, 20), 2):
        asked = own_marks.may_be_due(first, last, live)
        assert asked == [
            index_at for index_at in range(first, last + 1) if own_marks.due(0, index_at, live)
        ]
