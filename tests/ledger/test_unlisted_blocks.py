"""Every way in which memory blocks may lie in zones that a report only counts, next to a plain
enumeration."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, product

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.domain.demand import ContainerDemand
from shared.domain.report import Report, Zone, ZonedAmount, ZoneResource
from shared.hints.splits import TooManyChoicesError
from shared.ledger.unlisted_blocks import Way, ways_to_lie

MEMORY = "memory"
POLICIES = ["restricted", "best-effort", "none"]
Mask = tuple[int, ...]


def demand(*sizes: int) -> tuple[ContainerDemand, ...]:
    return tuple(ContainerDemand(f"c{n}", "app", {MEMORY: size}) for n, size in enumerate(sizes))


def counted(rooms: Sequence[int], used: Sequence[int], in_full: bool) -> Report:
    zones = [
        Zone(number, {MEMORY: ZoneResource(room, room, max(0, room - taken))})
        for number, (room, taken) in enumerate(zip(rooms, used, strict=True))
    ]
    return Report("n", "b", 1, tracked=(MEMORY,), zones=tuple(zones), counts_blocks_in_full=in_full)


def used_in_full(zones: int, blocks: Sequence[int], masks: Sequence[Mask]) -> list[int]:
    pairs = list(zip(blocks, masks, strict=True))
    return [sum(block for block, mask in pairs if zone in mask) for zone in range(zones)]


def drained(rooms: Sequence[int], blocks: Sequence[int], masks: Sequence[Mask]) -> list[int]:
    """Return the used memory by zone as NFD counts it: blocks of one zone first, then blocks of
    several zones, which fill their zones one after the other."""
    used = used_in_full(len(rooms), blocks, [mask if len(mask) == 1 else () for mask in masks])
    for block, mask in zip(blocks, masks, strict=True):
        rest = block if len(mask) > 1 else 0
        for zone in mask:
            taken = min(rest, rooms[zone] - used[zone])
            used[zone], rest = used[zone] + taken, rest - taken
    return used


def assignments(rooms: Sequence[int], blocks: Sequence[int], policy: str) -> Iterator[list[Mask]]:
    """Yield every assignment of blocks to zones and groups that a kubelet could have made."""
    zones = range(len(rooms))
    masks = [mask for size in range(1, len(rooms) + 1) for mask in combinations(zones, size)]
    for chosen in product(masks, repeat=len(blocks)):
        groups = {mask for mask in chosen if len(mask) > 1}
        if any(set(one) & set(other) for one, other in combinations(groups, 2)):
            continue
        pairs = list(zip(blocks, chosen, strict=True))
        fits = [any(block <= room for room in rooms) for block in blocks]
        if policy == "restricted" and any(
            fit and len(mask) > 1 for fit, mask in zip(fits, chosen, strict=True)
        ):
            continue
        if all(
            sum(block for block, mask in pairs if set(mask) <= set(area))
            <= sum(rooms[zone] for zone in area)
            for area in [*groups, *[(zone,) for zone in zones]]
        ):
            yield list(chosen)


def way(blocks: Sequence[int], masks: Sequence[Mask]) -> Way:
    sums: dict[Mask, int] = {}
    for block, mask in zip(blocks, masks, strict=True):
        sums[mask] = sums.get(mask, 0) + block
    ordered = sorted(sums, key=lambda mask: (len(mask) > 1, mask))
    return tuple(ZonedAmount(MEMORY, mask, sums[mask]) for mask in ordered)


def is_counted(report: Report, used: Sequence[int]) -> bool:
    pairs = zip(report.zones, used, strict=True)
    return all(
        zone.resources[MEMORY].available == max(0, zone.resources[MEMORY].allocatable - taken)
        for zone, taken in pairs
    )


@settings(max_examples=150, deadline=None)
@given(
    rooms=st.lists(st.integers(2, 6), min_size=1, max_size=3),
    blocks=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    policy=st.sampled_from(POLICIES),
    data=st.data(),
)
def test_the_ways_are_those_of_a_plain_enumeration(
    rooms: list[int], blocks: list[int], policy: str, data: st.DataObject
) -> None:
    possible = list(assignments(rooms, blocks, policy))
    if not possible:
        return
    true = data.draw(st.sampled_from(possible))
    report = counted(rooms, used_in_full(len(rooms), blocks, true), in_full=True)
    expected = {
        way(blocks, masks)
        for masks in possible
        if is_counted(report, used_in_full(len(rooms), blocks, masks))
    }
    assert set(ways_to_lie(report, [demand(*blocks)], policy)) == expected


@settings(max_examples=100, deadline=None)
@given(
    rooms=st.lists(st.integers(2, 6), min_size=1, max_size=3),
    blocks=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    policy=st.sampled_from(POLICIES),
    data=st.data(),
)
def test_of_an_unknown_exporter_the_ways_contain_both_kinds_of_counting(
    rooms: list[int], blocks: list[int], policy: str, data: st.DataObject
) -> None:
    possible = list(assignments(rooms, blocks, policy))
    if not possible:
        return
    true = data.draw(st.sampled_from(possible))
    used = data.draw(
        st.sampled_from([used_in_full(len(rooms), blocks, true), drained(rooms, blocks, true)])
    )
    report = counted(rooms, used, in_full=False)
    assert way(blocks, true) in ways_to_lie(report, [demand(*blocks)], policy)


def test_amounts_that_no_pod_explains_leave_the_zones_open() -> None:
    report = counted([8, 8], [3, 0], in_full=True)
    assert ways_to_lie(report, [demand(2)], "best-effort") == []


def test_a_block_over_two_zones_is_told_from_two_blocks() -> None:
    """30 of 59 are used in both zones: one block of 30 over both, or two blocks of 30."""
    report = counted([59, 59], [30, 30], in_full=True)
    assert ways_to_lie(report, [demand(30)], "best-effort") == [(ZonedAmount(MEMORY, (0, 1), 30),)]
    assert ways_to_lie(report, [demand(30, 30)], "best-effort") == [
        (ZonedAmount(MEMORY, (0,), 30), ZonedAmount(MEMORY, (1,), 30))
    ]


def test_many_blocks_of_different_sizes_are_no_burden() -> None:
    sizes = [1000 + 7 * number for number in range(40)]
    used = [sum(sizes[zone::4]) for zone in range(4)]
    report = counted([100_000] * 4, used, in_full=True)
    assert len(ways_to_lie(report, [demand(*sizes)], "best-effort")) == 1
    unknown = msgspec.structs.replace(report, counts_blocks_in_full=False)
    with pytest.raises(TooManyChoicesError):
        ways_to_lie(unknown, [demand(*sizes)], "best-effort")
    assert len(ways_to_lie(unknown, [demand(*sizes)], "restricted")) == 1
