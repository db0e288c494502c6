"""A zone that remains in spite of others: the fractional bound, plainly and in arrays, next to
every placement of the others.
"""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from services.scheduler.filter.topology import pigeonhole
from services.scheduler.filter.topology.bounds import Bounds
from services.scheduler.filter.topology.pigeonhole import (
    MOST_AMOUNT,
    Packing,
    PendingPart,
    each_is_left_a_zone,
    is_left_a_zone,
)
from shared.domain.resources import CPU, Amounts

GPU = "example.com/gpu"


def leaves_a_zone(asked: Amounts, base: Bounds, rooms: Bounds, others: list[PendingPart]) -> bool:
    """Return whether the bound leaves a zone. `asked` is the request of the new pod among the
    others.
    """
    parts = [*others[:1], PendingPart(asked, asked), *others[1:]]
    return each_is_left_a_zone(Packing.of(parts, base, rooms), [len(others[:1])])


def left_in_every_case(
    asked: Amounts, base: Bounds, rooms: Bounds, others: list[PendingPart]
) -> bool:
    """Return whether a zone is left for every placement of the others: each is in one zone that is
    large enough for it alone, or absent.
    """
    places = [
        [None, *(zone for zone, room in rooms.items() if part.asked[CPU] <= room[CPU])]
        for part in others
    ]
    return all(
        any(
            _fits(
                asked,
                base[zone],
                [part.take for part, at in zip(others, case, strict=True) if at == zone],
            )
            for zone in base
        )
        for case in product(*places)
    )


def _fits(asked: Amounts, free: Amounts, taken: list[Amounts]) -> bool:
    """Return whether the zone has enough of every requested resource."""
    wanted = [(name, amount) for name, amount in asked.items() if amount]
    return all(
        free.get(name, 0) - sum(each.get(name, 0) for each in taken) >= amount
        for name, amount in wanted
    )


def _moved(amounts: Amounts, shift: int) -> Amounts:
    return {name: amount << shift for name, amount in amounts.items()}


def _all_moved(bounds: Bounds, shift: int) -> Bounds:
    return {zone: _moved(amounts, shift) for zone, amounts in bounds.items()}


def _amounts(least: int, most: int) -> st.SearchStrategy[Amounts]:
    return st.fixed_dictionaries({CPU: st.integers(least, most), GPU: st.integers(0, 2)})


@st.composite
def parts(draw: st.DrawFn) -> PendingPart:
    asked, more = draw(_amounts(1, 6)), draw(st.integers(0, 2))
    return PendingPart(asked, asked | {CPU: asked[CPU] + more})


@given(
    _amounts(1, 5),
    st.dictionaries(st.integers(0, 7), _amounts(0, 9), min_size=1, max_size=4),
    st.integers(0, 2),
    st.lists(parts(), max_size=5),
    st.integers(0, 48),
)
def test_what_the_bound_promises_holds_wherever_the_others_stand(
    asked: Amounts, base: Bounds, more: int, others: list[PendingPart], shift: int
) -> None:
    """Amounts of bytes as well as of CPUs."""
    asked, base, others = (
        _moved(asked, shift),
        _all_moved(base, shift),
        [PendingPart(*(_moved(each, shift) for each in part)) for part in others],
    )
    rooms = {zone: free | {CPU: free[CPU] + (more << shift)} for zone, free in base.items()}
    promised, is_left = (
        leaves_a_zone(asked, base, rooms, others),
        left_in_every_case(asked, base, rooms, others),
    )
    plainly = is_left_a_zone(asked, base, rooms, others)
    event(f"a zone is left: {is_left}, and told: {promised}, plainly: {plainly}")
    assert is_left or not (promised or plainly)


@given(
    st.lists(parts(), min_size=1, max_size=8),
    st.dictionaries(st.integers(0, 7), _amounts(0, 9), max_size=5),
    st.integers(0, 2),
    st.integers(1, 200),
)
def test_all_seekers_at_once_get_the_answer_of_each_alone(
    those: list[PendingPart], base: Bounds, more: int, at_once: int
) -> None:
    """This holds even for too many pods to be filtered together. The amounts are small, because
    large ones are rounded differently.
    """
    rooms = {zone: free | {CPU: free[CPU] + more} for zone, free in base.items()}
    alone = [
        is_left_a_zone(seeker.asked, base, rooms, [part for part in those if part is not seeker])
        for seeker in those
    ]
    event(f"each is left a zone: {all(alone)}, some are: {any(alone)}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pigeonhole, "AT_ONCE", at_once)
        assert each_is_left_a_zone(Packing.of(those, base, rooms), range(len(those))) == all(alone)
        assert [
            each_is_left_a_zone(Packing.of(those, base, rooms), [at]) for at in range(len(those))
        ] == alone


def test_parts_that_come_in_sequence_equal_parts_that_come_together() -> None:
    first, second = PendingPart({CPU: 1}, {CPU: 2}), PendingPart({CPU: 3, GPU: 1}, {CPU: 3, GPU: 1})
    base: Bounds = {0: {CPU: 4}, 3: {CPU: 5, GPU: 1}}
    one_by_one, together = (
        Packing.of([first], base, base).joined([second]),
        Packing.of([first, second], base, base),
    )
    assert [each.tolist() for each in one_by_one[1:]] == [each.tolist() for each in together[1:]]


def test_what_no_zone_has_is_found_in_none() -> None:
    assert not leaves_a_zone({CPU: 1, GPU: 1}, {0: {CPU: 4}}, {0: {CPU: 4}}, [])
    assert not leaves_a_zone({CPU: 1}, {}, {}, [])
    assert leaves_a_zone(
        {CPU: 1}, {0: {CPU: 4}}, {0: {CPU: 4}}, [PendingPart({CPU: 1, GPU: 1}, {CPU: 1, GPU: 1})]
    )


def test_amounts_that_are_no_machine_s_are_never_found_free() -> None:
    huge = {0: {CPU: 1 << 70}}
    assert not leaves_a_zone({CPU: 1 << 69}, huge, huge, [])
    assert not leaves_a_zone({CPU: 1}, huge, huge, [PendingPart({CPU: 1 << 69}, {CPU: 1 << 69})])
    assert leaves_a_zone(
        {CPU: 1}, huge, huge, [PendingPart({CPU: MOST_AMOUNT // 2}, {CPU: MOST_AMOUNT // 2})]
    )


def _told(asked: int, zones: list[int], others: list[int], rooms: list[int] | None = None) -> bool:
    """Return the answer of both forms, which must be equal."""
    base, most = (
        {at: {CPU: free} for at, free in enumerate(each)} for each in (zones, rooms or zones)
    )
    seen = {CPU: asked}, base, most, [PendingPart({CPU: each}, {CPU: each}) for each in others]
    promise = leaves_a_zone(*seen)
    assert is_left_a_zone(*seen) == promise
    return promise


def test_what_one_takes_beyond_a_zone_s_need_blocks_no_other_zone() -> None:
    """Three of 6 CPUs: together 18, and 3 would do for each of four zones of 6 that are to keep 4;
    but each is in one.
    """
    assert _told(4, [6, 6, 6, 6], [6, 6, 6])
    assert not _told(4, [6, 6, 6, 6], [6, 6, 6, 6])


def test_a_part_that_fits_no_zone_blocks_none() -> None:
    assert _told(4, [6, 6], [1, 8, 8])
    assert not _told(4, [6, 6], [1, 8, 8], rooms=[8, 8])


def test_the_zone_that_is_hardest_to_block_may_remain() -> None:
    """Two of 4 CPUs block a small zone each, and not the large one."""
    assert _told(4, [4, 4, 16], [4, 4])


def test_one_zone_that_no_part_can_block_suffices() -> None:
    """Parts of 4 CPUs cannot be in the second zone; both zones together they would cover twice."""
    assert _told(1, [4, 1], [4, 4])


def test_some_crowds_are_bounded_by_their_amounts_and_some_by_their_number() -> None:
    assert _told(4, [4, 6], [1, 2])
    assert _told(4, [12, 6], [8, 6])


def test_a_share_is_rounded_up() -> None:
    """Three of one CPU are what a zone needs."""
    assert not _told(4, [6], [1, 1, 1])


def test_three_that_take_what_a_zone_needs_block_it_in_whatever_units_bytes_are_counted() -> None:
    for number in range(1 << 40, (1 << 40) + 500):
        assert not _told(1, [3 * number], [number] * 3)


def test_a_zone_is_left_of_nothing() -> None:
    assert not _told(4, [3, 3], [])
    assert _told(4, [4, 3], [])
