"""A release with other fold code starts from a checkpoint only if it folds a sample of the log to
the same state.
"""

from __future__ import annotations

import msgspec
import pytest

from shared.eventlog import checkpoints
from shared.eventlog.checkpoints import Form, nearest_checkpoint
from shared.eventlog.memory import MemoryEventLog
from shared.eventlog.port import EventLog, Place
from shared.events.catalog import Event
from shared.events.envelope import Envelope
from shared.runtime import checkpointing
from shared.runtime import projector as projectors
from shared.runtime.projector import Fold, Projector
from tests.eventlog.words import given
from tests.runtime.helpers import QUICK, running

State = dict[str, int]
EVERY = 5


@pytest.fixture(autouse=True)
def _near(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(projectors, "EVERY", EVERY)
    monkeypatch.setattr(checkpointing, "EVERY", EVERY)
    monkeypatch.setattr(checkpointing, "DOUBLINGS_IN_REPLAY", 0)


def evolve(state: State, envelope: Envelope, _event: Event) -> None:
    """Fold so that a missed, repeated or misplaced event changes the state."""
    state[envelope.stream] = (state.get(envelope.stream, 0) * 31 + envelope.position) % 1_000_003


def renamed(state: State, envelope: Envelope, event: Event) -> None:
    """Fold with other names, which is the next form of the state."""
    plain = {name.removeprefix("s/"): number for name, number in state.items()}
    evolve(plain, envelope, event)
    state.clear()
    state.update({f"s/{name}": number for name, number in plain.items()})


def to_renamed(dumped: bytes) -> bytes:
    state = msgspec.json.decode(dumped, type=State)
    return msgspec.json.encode({f"s/{name}": number for name, number in state.items()})


class Release:
    """The fold of one release, and the positions of its calls."""

    def __init__(self, code: str, evolve: object = evolve, form: Form | None = None) -> None:
        self.folded: list[int] = []

        def counted(state: State, envelope: Envelope, event: Event) -> None:
            self.folded.append(envelope.position)
            evolve(state, envelope, event)  # type: ignore[operator]

        def load(dumped: bytes) -> State:
            return msgspec.json.decode(dumped, type=State)

        self.fold: Fold[State] = Fold(
            dict, counted, code, msgspec.json.encode, load, form=form or Form()
        )

    async def run(self, log: EventLog) -> Projector[State]:
        projector = Projector("p", log, self.fold, options=QUICK)
        async with running(projector.run()):
            assert await projector.wait_for(await log.head(), 60)
        return projector


async def history() -> MemoryEventLog:
    """Return a log of 13 events that the first release has folded."""
    log = MemoryEventLog()
    await given(log, *"abcabcabcabca")
    await Release("one").run(log)
    return log


async def test_another_release_folds_one_sample_and_what_follows() -> None:
    log = await history()
    first_release, two = Release("one"), Release("two")
    whole = (await first_release.run(log)).state
    assert (await two.run(log)).state == whole
    assert two.folded == [*range(6, 11), *range(11, 14)]
    assert first_release.folded == [*range(11, 14)], "its own checkpoint needs no proof"


async def test_an_upcaster_converts_the_form_of_the_release_before() -> None:
    log = await history()
    two = Release("two", renamed, Form(2, {1: to_renamed}))
    state = (await two.run(log)).state
    assert state == msgspec.json.decode(to_renamed(msgspec.json.encode(await plain(log))))
    assert min(two.folded) == 6
    without = Release("two", renamed, Form(2))
    assert (await without.run(log)).state == state
    assert without.folded == [*range(1, 14)]


async def plain(log: EventLog) -> State:
    state: State = {}
    for envelope in await log.read(0, 100):
        evolve(state, envelope, None)  # type: ignore[arg-type]
    return state


async def test_a_release_that_folds_otherwise_starts_from_the_beginning() -> None:
    log = await history()

    def other(state: State, envelope: Envelope, event: Event) -> None:
        evolve(state, envelope, event)
        state["count"] = state.get("count", 0) + 1

    two = Release("two", other)
    assert (await two.run(log)).state["count"] == 13
    assert two.folded[-13:] == [*range(1, 14)]


@pytest.mark.parametrize("damaged", [b"", b"TPLS1", b"TPLS1" + bytes(40)])
async def test_a_damaged_checkpoint_is_not_used(damaged: bytes) -> None:
    log = await history()
    tenth = (await log.read(9, 1))[0]
    await log.save_snapshot("p.checkpoint", "form 1", Place(10, tenth.chain), damaged)
    two = Release("two")
    assert (await two.run(log)).state == await plain(log)
    assert two.folded == [*range(1, 14)]


async def test_a_checkpoint_names_its_code_and_place() -> None:
    log = await history()
    checkpoint = await nearest_checkpoint(log, "p", Form(), 9)
    assert checkpoint is not None
    assert (checkpoint.place.position, checkpoint.code) == (5, "one")
    assert checkpoints.EVERY == 25_000
