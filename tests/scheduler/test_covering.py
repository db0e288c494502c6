"""A zone that is left in spite of all others: the fractional bound beside every way in which they can stand."""

from __future__ import annotations

from itertools import product

from hypothesis import event, given
from hypothesis import strategies as st

from services.scheduler.deciding.feasibility.covering import Bounds, Part, leaves_a_zone
from shared.domain.resources import CPU, Amounts

GPU = "example.com/gpu"


def left_in_every_case(asked: Amounts, base: Bounds, rooms: Bounds, others: list[Part]) -> bool:
    """Each of the others stands in one zone that has room for it alone, or is not there."""
    places = [[None, *(zone for zone, room in rooms.items() if part.asked[CPU] <= room[CPU])] for part in others]
    return all(
        any(_fits(asked, base[zone], [part.take for part, at in zip(others, case, strict=True) if at == zone]) for zone in base)
        for case in product(*places)
    )


def _fits(asked: Amounts, free: Amounts, taken: list[Amounts]) -> bool:
    return all(free.get(name, 0) - sum(each.get(name, 0) for each in taken) >= amount for name, amount in asked.items())


def _amounts(least: int, most: int) -> st.SearchStrategy[Amounts]:
    return st.fixed_dictionaries({CPU: st.integers(least, most), GPU: st.integers(0, 2)})


@st.composite
def parts(draw: st.DrawFn) -> Part:
    asked, more = draw(_amounts(1, 6)), draw(st.integers(0, 2))
    return Part(asked, asked | {CPU: asked[CPU] + more})


@given(
    _amounts(1, 5),
    st.dictionaries(st.integers(0, 7), _amounts(0, 9), min_size=1, max_size=4),
    st.integers(0, 2),
    st.lists(parts(), max_size=5),
)
def test_what_the_bound_promises_holds_wherever_the_others_stand(
    asked: Amounts, base: Bounds, more: int, others: list[Part]
) -> None:
    rooms = {zone: free | {CPU: free[CPU] + more} for zone, free in base.items()}
    promised, left = leaves_a_zone(asked, base, rooms, others), left_in_every_case(asked, base, rooms, others)
    event(f"a zone is left: {left}, and told: {promised}")
    assert left or not promised


def _told(asked: int, zones: list[int], others: list[int], rooms: list[int] | None = None) -> bool:
    base, most = ({at: {CPU: free} for at, free in enumerate(each)} for each in (zones, rooms or zones))
    return leaves_a_zone({CPU: asked}, base, most, [Part({CPU: each}, {CPU: each}) for each in others])


def test_what_one_takes_beyond_a_zone_s_need_blocks_no_other_zone() -> None:
    """Three of 6 CPUs: together 18, and 3 would do for each of four zones of 6 that are to keep 4; but each stands in one."""
    assert _told(4, [6, 6, 6, 6], [6, 6, 6])
    assert not _told(4, [6, 6, 6, 6], [6, 6, 6, 6])


def test_who_fits_into_no_zone_blocks_none() -> None:
    assert _told(4, [6, 6], [1, 8, 8])
    assert not _told(4, [6, 6], [1, 8, 8], rooms=[8, 8])


def test_the_zone_that_is_hardest_to_block_may_be_the_one_that_is_left() -> None:
    """Two of 4 CPUs block a small zone each, and not the large one."""
    assert _told(4, [4, 4, 16], [4, 4])


def test_one_zone_that_nobody_can_block_suffices_whoever_crowds_the_others() -> None:
    """Those of 4 CPUs cannot stand in the second zone; both zones together they would cover twice."""
    assert _told(1, [4, 1], [4, 4])


def test_some_crowds_are_told_by_what_they_take_and_some_by_how_many_they_are() -> None:
    assert _told(4, [4, 6], [1, 2])
    assert _told(4, [12, 6], [8, 6])


def test_a_share_is_rounded_up() -> None:
    """Three of one CPU are what a zone needs."""
    assert not _told(4, [6], [1, 1, 1])


def test_a_zone_is_left_of_nothing() -> None:
    assert not _told(4, [3, 3], [])
    assert _told(4, [4, 3], [])
    assert not leaves_a_zone({CPU: 1, GPU: 1}, {0: {CPU: 4}}, {0: {CPU: 4}}, [])
