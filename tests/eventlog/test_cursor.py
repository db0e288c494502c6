"""The cursor against every interleaving of appends, hints, losses, repeats, lies, reconnects and
polls.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import pytest

from shared.eventlog.cursor import (
    Cursor,
    Open,
    Phase,
    Read,
    Reset,
    Wait,
    hinted,
    next_step,
    opened,
    promised,
    received,
)
from shared.eventlog.errors import LogBroken
from shared.eventlog.port import LogIdentity, Lost
from shared.events.envelope import Envelope

LOG = LogIdentity("log", 1)
PAGE = 2


def envelope(position: int, history: str = "one") -> Envelope:
    chain = f"{history} {position}".encode()
    return Envelope(
        position, "s", position, "PodRunning", 1, b"", 0, "r", 0, str(position), chain=chain
    )


class World(NamedTuple):
    """The log's head, pending hints, the events that the reader got, and its cursor."""

    head: int
    hints: tuple[int, ...]
    given: tuple[int, ...]
    cursor: Cursor


def stepped(world: World) -> World:
    """Let the reader do what its cursor says."""
    step = next_step(world.cursor)
    if isinstance(step, Open):
        cursor, reset = opened(world.cursor, LOG, world.head)
        assert reset is None
        return world._replace(cursor=cursor)
    if isinstance(step, Wait):
        return world
    page = [
        envelope(position)
        for position in range(step.after + 1, min(step.after + PAGE, world.head) + 1)
    ]
    cursor, fresh = received(world.cursor, page)
    assert not isinstance(fresh, Reset)
    return world._replace(cursor=cursor, given=(*world.given, *(event.position for event in fresh)))


def polled(world: World) -> World:
    """Poll or reconnect: ask for identity and head again."""
    cursor, reset = opened(world.cursor, LOG, world.head)
    assert reset is None
    return world._replace(cursor=cursor)


def moves(world: World) -> list[World]:
    """Yield every world that one event can lead to."""
    lied = world._replace(cursor=hinted(world.cursor, world.head + 5))
    result = [
        world._replace(head=world.head + 1, hints=(*world.hints, world.head + 1)),
        stepped(world),
        polled(world),
        lied,
    ]
    for index, hint in enumerate(world.hints):
        rest = world.hints[:index] + world.hints[index + 1 :]
        reported = hinted(world.cursor, hint)
        result += [
            world._replace(hints=rest, cursor=reported),
            world._replace(cursor=reported),
            world._replace(hints=rest),
        ]
    return result


def settled(world: World) -> World:
    """Return the world after faults stopped and the bus failed, so that only polling and reading
    remain.
    """
    world = polled(world)
    for _ in range(20):
        world = stepped(world)
    return world


def check(world: World) -> None:
    assert world.given == tuple(range(1, len(world.given) + 1))
    assert world.cursor.position == len(world.given) <= world.head
    end = settled(world)
    assert end.given == tuple(range(1, world.head + 1))
    assert end.cursor.phase is Phase.LIVE
    assert next_step(end.cursor) == Wait(world.head)


def test_every_interleaving_delivers_everything_once_in_order_and_ends_live() -> None:
    reached = {World(0, (), (), Cursor()), World(3, (), (), Cursor())}
    frontier = set(reached)
    for _ in range(9):
        frontier = {later for earlier in frontier for later in moves(earlier)} - reached
        reached |= frontier
    for world in reached:
        check(world)
    assert len(reached) > 10_000


def test_a_reader_replays_then_catches_up_then_is_live() -> None:
    cursor, _ = opened(Cursor(), LOG, 3)
    phases = [cursor.phase]
    for page in ([1, 2], [3, 4], [5]):
        cursor = hinted(cursor, 5)
        cursor, _ = received(cursor, [envelope(position) for position in page])
        phases.append(cursor.phase)
    assert phases == [Phase.REPLAYING, Phase.REPLAYING, Phase.CATCHING_UP, Phase.LIVE]


@pytest.mark.parametrize("page", [[3], [1, 3], [2, 1], [1, 1, 3], [1, 2, 2]])
def test_a_hole_or_disorder_in_the_log_stops_the_reader(page: list[int]) -> None:
    cursor, _ = opened(Cursor(), LOG, 9)
    with pytest.raises(LogBroken, match="no hole"):
        received(cursor, [envelope(position) for position in page])


def test_events_already_given_are_not_given_again() -> None:
    cursor, _ = opened(Cursor(position=2), LOG, 4)
    _, fresh = received(cursor, [envelope(position) for position in (1, 2, 3, 4)])
    assert isinstance(fresh, list)
    assert [event.position for event in fresh] == [3, 4]


@pytest.mark.parametrize(
    ("identity", "head", "cause"),
    [
        (LogIdentity("other", 1), 9, "other_log"),
        (LogIdentity("log", 2), 9, "other_timeline"),
        (LOG, 4, "head_behind"),
    ],
)
def test_another_history_resets_the_reader_to_the_beginning(
    identity: LogIdentity, head: int, cause: str
) -> None:
    cursor, _ = opened(Cursor(position=5), LOG, 5)
    cursor, reset = opened(cursor, identity, head)
    assert reset is not None
    assert reset.cause == cause
    assert (cursor.position, cursor.phase, next_step(cursor)) == (0, Phase.REPLAYING, Read(0))


@pytest.mark.parametrize(
    ("identity", "head", "lost"),
    [
        (LogIdentity("other", 1), 9, None),
        (LogIdentity("log", 4), 9, None),
        (LogIdentity("log", 2), 9, Lost(2, 3, 5)),
        (LogIdentity("log", 3), 4, Lost(3, 3, 5)),
    ],
)
def test_lost_events_are_reported_unless_the_log_says_that_it_is_another(
    identity: LogIdentity, head: int, lost: Lost | None
) -> None:
    cursor, _ = opened(Cursor(position=5), LogIdentity("log", 3), 5)
    _, reset = opened(cursor, identity, head)
    assert reset is not None
    assert reset.lost == lost


def test_a_reader_beyond_the_head_at_its_start_is_reset() -> None:
    _, reset = opened(Cursor(position=7), LOG, 5)
    assert reset is not None


def test_a_restored_log_that_outgrew_the_reader_is_detected_by_the_readers_chain() -> None:
    cursor, _ = opened(Cursor(), LOG, 5)
    cursor, _ = received(cursor, [envelope(position) for position in range(1, 6)])
    cursor, reset = opened(cursor, LOG, 9)
    assert reset is None, "neither identity nor head tell anything"
    step = next_step(cursor)
    assert step == Read(4), "the fact where the reader stands is read again"
    cursor, fresh = received(cursor, [envelope(position, "other") for position in range(5, 10)])
    assert fresh == Reset("other_history", Lost(1, 1, 5, b"one 5"))
    assert (cursor.position, cursor.phase, next_step(cursor)) == (0, Phase.REPLAYING, Open())


def test_a_log_that_ends_before_the_reader_gives_an_empty_page_and_resets() -> None:
    cursor, _ = opened(Cursor(), LOG, 5)
    cursor, _ = received(cursor, [envelope(position) for position in range(1, 6)])
    _, fresh = received(cursor, [])
    assert fresh == Reset("head_behind", Lost(1, 1, 5, b"one 5"))


def test_a_reader_of_a_log_that_ends_before_it_is_live_again_at_the_end_that_there_is() -> None:
    cursor, _ = opened(Cursor(), LOG, 5)
    cursor, _ = received(cursor, [envelope(position) for position in range(1, 6)])
    cursor, _ = received(cursor, [])
    assert next_step(cursor) == Open(), "where the log ends now is asked"
    cursor, _ = opened(cursor, LOG, 3)
    cursor, _ = received(cursor, [envelope(position) for position in range(1, 4)])
    assert cursor.phase is Phase.LIVE


def test_a_lost_position_resets_a_reader_that_had_not_read_it_too() -> None:
    cursor, _ = opened(Cursor(), LOG, 3)
    cursor, _ = received(cursor, [envelope(position) for position in range(1, 4)])
    cursor, reset = opened(promised(cursor, 7), LOG, 5)
    assert reset == Reset("head_behind", Lost(1, 1, 7))


def test_rows_older_than_chains_prove_nothing_and_reset_no_reader() -> None:
    older = [msgspec.structs.replace(envelope(position), chain=b"") for position in (1, 2, 3)]
    cursor, _ = received(opened(Cursor(), LOG, 3)[0], older[:2])
    _, fresh = received(cursor, older[1:])
    assert isinstance(fresh, list)
    assert [event.position for event in fresh] == [3]
