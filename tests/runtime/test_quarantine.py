"""An event that cannot be read or folded quarantines its stream and nothing else, until an operator
skips the event.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from services.upkeep.errors import UpkeepRefused
from services.upkeep.skipping import skip
from shared.eventlog.port import Place
from shared.events import streams
from shared.events.catalog import Event
from shared.events.envelope import Envelope
from shared.runtime.health import Health
from shared.runtime.projector import Fold, Projector
from tests.eventlog.words import commit, draft, given
from tests.runtime.helpers import QUICK, FaultyLog, running, undecodable, until

State = dict[str, list[int]]


def evolve(state: State, envelope: Envelope, _event: Event) -> None:
    if envelope.stream == "spoilt":
        raise KeyError("no such zone")
    state.setdefault(envelope.stream, []).append(envelope.position)


def fold(received: list[str] | None = None) -> Fold[State]:
    received_messages: list[str] = [] if received is None else received
    return Fold(
        dict,
        evolve,
        "f",
        msgspec.json.encode,
        lambda data: msgspec.json.decode(data, type=State),
        set_aside=lambda _state, stream: received_messages.append(stream),
    )


async def word(log: FaultyLog, position: int) -> None:
    await skip(log, position, "me", "damaged", 1, force=True)


async def test_the_stream_of_an_unreadable_event_is_set_aside_and_the_rest_goes_on() -> None:
    log, health, received = FaultyLog(), Health(), list[str]()
    await given(log, *"abab")
    log.damage = undecodable(3)
    projector = Projector("p", log, fold(received), health=health, options=QUICK)
    async with running(projector.run()) as (task,):
        await projector.wait_live()
        await given(log, *"xxbacx")
        assert await projector.wait_for(10, 60)
        assert not task.done()
    assert projector.state == {"a": [1], "b": [2, 4, 7], "x": [5, 6, 10], "c": [9]}
    assert received == ["a"]
    (problem,) = health.status().red.values()
    assert "event 3 (FromTheFuture schema 1 on a)" in problem
    assert "topolog log skip 3" in problem


async def test_unreadable_events_on_streams_of_an_unknown_kind_are_skipped() -> None:
    log, health, received = FaultyLog(), Health(), list[str]()
    await given(log, "a", "dream/b", "pod/c", "dream/b", "a")
    log.damage = lambda page: [
        msgspec.structs.replace(event, type="FromTheFuture") if "/" in event.stream else event
        for event in page
    ]
    projector = Projector("p", log, fold(received), health=health, options=QUICK)
    async with running(projector.run()):
        assert await projector.wait_for(5, 60)
    assert projector.state == {"a": [1, 5]}
    assert received == ["pod/c"]
    assert len(health.status().red) == 1


async def test_what_a_page_holds_before_an_unreadable_event_of_the_same_stream_is_folded() -> None:
    log, received = FaultyLog(), list[str]()
    await given(log, "a", "spoilt", "a", "b", "spoilt", "a")
    log.damage = undecodable(3)
    projector = Projector("p", log, fold(received), options=QUICK)
    async with running(projector.run()):
        assert await projector.wait_for(6, 60)
    assert projector.state == {"a": [1], "b": [4]}
    assert received == ["spoilt", "a"]


async def test_a_event_that_the_fold_cannot_take_sets_its_stream_aside_too() -> None:
    log, health = FaultyLog(), Health()
    await given(log, "a", "spoilt", "a", "spoilt")
    projector = Projector("p", log, fold(), health=health, options=QUICK)
    async with running(projector.run()):
        assert await projector.wait_for(4, 60)
    assert projector.state == {"a": [1, 3]}
    assert "no such zone" in str(health.status().red)


@pytest.mark.parametrize(
    "spoilt", ["spoilt", "a spoilt", "a spoilt b", "spoilt a spoilt", "a b spoilt spoilt a b"]
)
async def test_each_event_is_folded_once_and_delivered_once_with_any_other_streams(
    spoilt: str,
) -> None:
    log, asked, received_messages = FaultyLog(), list[int](), list[int]()
    await given(log, *spoilt.split())

    def once(state: State, envelope: Envelope, event: Event) -> None:
        asked.append(envelope.position)
        evolve(state, envelope, event)

    projector = Projector(
        "p",
        log,
        Fold(dict, once),
        after=lambda _state, folded: received_messages.extend(e.position for e, _ in folded),
        options=QUICK,
    )
    async with running(projector.run()):
        assert await projector.wait_for(len(spoilt.split()), 60)
    good = [
        index_at for index_at, stream in enumerate(spoilt.split(), start=1) if stream != "spoilt"
    ]
    assert received_messages == good
    assert asked == sorted({*good, spoilt.split().index("spoilt") + 1})
    last = (await log.read(0))[-1]
    assert projector.place == Place(last.position, last.chain)


async def test_a_skipped_event_frees_its_stream_for_running_and_starting_services() -> None:
    log, health, resets = FaultyLog(), Health(), list[Any]()
    await given(log, *"abab")
    log.damage = undecodable(3)
    running_one = Projector("p", log, fold(), health=health, on_reset=resets.append, options=QUICK)
    async with running(running_one.run()):
        await until(lambda: not health.status().healthy)
        await word(log, 3)
        await log.append([commit("later", draft("a"))])
        await until(lambda: running_one.position == 6)
        assert health.status().healthy
    expected = {"a": [1, 6], "b": [2, 4], streams.LOG: [5]}
    assert running_one.state == expected
    started = Projector("q", log, fold(), options=QUICK)
    async with running(started.run()):
        assert await started.wait_for(6, 60)
    assert started.state == expected


async def test_no_snapshot_is_kept_while_a_stream_is_quarantined_and_no_older_one_is_used() -> None:
    log = FaultyLog()
    await given(log, *"abab")
    earlier = Projector("p", log, fold(), options=QUICK)
    async with running(earlier.run()):
        assert await earlier.wait_for(4, 60)
        await earlier.save()
    assert await log.load_snapshot("p", "f") is not None
    log.damage = undecodable(3)
    await word(log, 3)
    later = Projector("p", log, fold(), options=QUICK)
    async with running(later.run()):
        assert await later.wait_for(5, 60)
    assert later.state == {"a": [1], "b": [2, 4], streams.LOG: [5]}, "the snapshot knew fact 3"
    log.damage = undecodable(2)
    aside = Projector("r", log, fold(), options=QUICK)
    async with running(aside.run()):
        assert await aside.wait_for(5, 60)
        await aside.save()
    assert await log.load_snapshot("r", "f") is None


async def test_a_word_about_nothing_that_can_be_skipped_is_refused() -> None:
    log = FaultyLog()
    await given(log, "a")
    with pytest.raises(UpkeepRefused, match="can be read"):
        await skip(log, 1, "me", "why", 1)
    with pytest.raises(UpkeepRefused, match="no position 9; it ends at 1"):
        await skip(log, 9, "me", "why", 1)
    await word(log, 1)
    with pytest.raises(UpkeepRefused, match="skipped already"):
        await word(log, 1)
    with pytest.raises(UpkeepRefused, match="never skipped"):
        await word(log, 2)
