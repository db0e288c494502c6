"""A projector's state is the fold of the whole log, by whatever way it got there."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from shared.eventlog.port import EventLog
from shared.eventlog.postgres import PostgresEventLog
from shared.events.catalog import Event
from shared.events.envelope import Envelope
from shared.runtime.consumer import ConsumerOptions
from shared.runtime.projector import AT_ONCE, Fold, Folded, Projector
from tests.eventlog.conftest import log_url, postgres_log  # noqa: F401 - fixtures
from tests.eventlog.words import given, place
from tests.runtime.helpers import QUICK, FaultyLog, running, until

State = dict[str, int]


def evolve(state: State, envelope: Envelope, _event: Event) -> None:
    """Fold so that a missed, repeated or misplaced event changes the state."""
    state[envelope.stream] = (state.get(envelope.stream, 0) * 31 + envelope.position) % 1_000_003


def fold(fingerprint: str = "f1") -> Fold[State]:
    def load(state: bytes) -> State:
        return msgspec.json.decode(state, type=State)

    return Fold(dict, evolve, fingerprint, msgspec.json.encode, load)


async def folded(log: EventLog, head: int) -> State:
    """Return the plain fold of positions 1 to `head`."""
    state: State = {}
    for envelope in await log.read(0, head):
        evolve(state, envelope, None)  # type: ignore[arg-type]
    return state


async def run_to(log: EventLog, head: int, **options: Any) -> Projector[State]:
    projector = Projector("p", log, options.pop("fold", fold()), options=QUICK, **options)
    async with running(projector.run()):
        assert await projector.wait_for(head, 60)
    return projector


async def test_the_state_is_the_fold_of_the_log(postgres_log: PostgresEventLog) -> None:  # noqa: F811, RUF100
    await given(postgres_log, *"abcabcabca")
    projector = Projector("p", postgres_log, fold(), options=QUICK)
    async with running(projector.run()):
        await projector.wait_live()
        await given(postgres_log, *"xyz")
        assert await projector.wait_for(13, 60)
        assert (projector.state, projector.position) == (await folded(postgres_log, 13), 13)


@pytest.mark.parametrize("index_at", range(0, 12, 2))
async def test_a_fold_from_any_snapshot_equals_the_fold_of_everything(index_at: int) -> None:
    log = FaultyLog()
    await given(log, *"abcabcabcabc"[:index_at])
    first = await run_to(log, index_at)
    await first.save()
    await given(log, *"bcdbcd")
    second = await run_to(log, index_at + 6)
    assert second.state == await folded(log, index_at + 6)


async def test_a_snapshot_spares_the_replay() -> None:
    log = FaultyLog()
    await given(log, *"abcabc")
    await (await run_to(log, 6)).save()
    read: list[int] = []
    log.damage = lambda page: (read.extend(event.position for event in page), page)[1]  # type: ignore[func-returns-value]
    await given(log, "z")
    assert (await run_to(log, 7)).state == await folded(log, 7)
    assert read[:2] == [6, 7], "where the reader stands, and what is new"


async def test_a_damaged_snapshot_or_one_of_other_code_is_replayed_instead() -> None:
    log = FaultyLog()
    await given(log, *"abc")
    await log.save_snapshot("p", "f1", await place(log, 2), b"TPLS1 nonsense")
    assert (await run_to(log, 3)).state == await folded(log, 3)
    await (await run_to(log, 3, fold=fold("old code"))).save()
    assert (await run_to(log, 3)).state == await folded(log, 3)


async def test_snapshots_are_saved_as_the_log_grows() -> None:
    log = FaultyLog()
    await given(log, *"abcabcabc")
    await run_to(log, 9, snapshot_every=4)
    result = await log.load_snapshot("p", "f1")
    assert result is not None
    assert 4 <= result[0].position <= 9


async def test_a_reset_folds_the_other_history_from_the_beginning() -> None:
    log, resets = FaultyLog(), []
    await given(log, *"abcde")
    projector = Projector(
        "p", log, fold(), on_reset=lambda state: resets.append(dict(state)), options=QUICK
    )
    async with running(projector.run()):
        assert await projector.wait_for(5, 60)
        log.restore(3)
        await until(lambda: projector.position == 3)
        assert projector.state == await folded(log, 3)
    assert resets == [{}]


async def test_listeners_get_every_event_once_with_the_state_at_that_position() -> None:
    log, received = FaultyLog(), list[int]()
    await given(log, *("abcde" * 50))

    def later(state: State, page: Folded) -> None:
        received.extend(envelope.position for envelope, _ in page)
        assert len(page) <= AT_ONCE
        assert (state, projector.position) == (states[len(received)], len(received))

    states: dict[int, State] = {}
    state: State = {}
    for envelope in await log.read(0, 250):
        evolve(state, envelope, None)  # type: ignore[arg-type]
        states[envelope.position] = dict(state)
    projector = Projector("p", log, fold(), after=later, options=ConsumerOptions(page_events=230))
    async with running(projector.run()):
        assert await projector.wait_for(250, 60)
    assert received == list(range(1, 251))
