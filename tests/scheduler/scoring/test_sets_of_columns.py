"""Room of sets of zones is the same in arrays, in plain amounts and in words."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from services.scheduler.score.strategies.room import room_of
from services.scheduler.score.strategies.set_room import PlainSetRoom, SetRoomTable
from services.scheduler.score.strategies.strategy import DemandClass
from shared.domain.resources import Amounts
from tests.fixtures.examples import examples

NAMES = ("cpu", "memory", "vendor.example/gpu")
AMOUNT = st.integers(0, 9)
ZONE = st.tuples(AMOUNT, AMOUNT, AMOUNT)
# Size and free amounts of each zone of a node.
NODE = st.lists(st.tuples(ZONE, ZONE), min_size=1, max_size=8)
CLASSES = st.lists(
    st.builds(
        lambda amounts, power: DemandClass(tuple(sorted(amounts.items())), 2**power),
        st.dictionaries(st.sampled_from(NAMES), st.integers(1, 24), min_size=1),
        st.integers(0, 12),
    ),
    max_size=5,
)
REQUEST = st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, 2))

Zones = list[Amounts]


def sets_in_words(amounts: Amounts, sizes: Zones, free: Zones) -> list[Amounts]:
    """Return the sums of the sets of zones that may hold the amounts, computed set by set; the
    freest zones come first.
    """
    widths = set()
    for name, amount in amounts.items():
        largest = sorted((size[name] for size in sizes), reverse=True)
        widths.add(
            next(
                (n for n in range(1, len(sizes) + 1) if sum(largest[:n]) >= amount), len(sizes) + 1
            )
        )
    width = max(widths)
    if len(widths) > 1 or not 1 < width <= len(sizes):
        return []
    listing = [size for size in sizes if any(size[name] for name in amounts)]
    freest = {name: sorted((zone[name] for zone in free), reverse=True) for name in amounts}
    return [
        {name: sum(freest[name][first : first + width]) for name in amounts}
        for first in range(0, len(listing) // width * width, width)
    ]


def room_in_words(demand_class: DemandClass, sizes: Zones, free: Zones) -> int:
    amounts, room = dict(demand_class.amounts), 0
    for total in sets_in_words(amounts, sizes, free):
        room += room_of(min(int(Fraction(total[name] * 64, amounts[name])) for name in amounts))
    return demand_class.weight * room


def as_zones(node: list[tuple[tuple[int, ...], tuple[int, ...]]]) -> tuple[Zones, Zones]:
    sizes = [dict(zip(NAMES, size, strict=True)) for size, _ in node]
    free = [
        {name: min(most, amount) for name, most, amount in zip(NAMES, size, held, strict=True)}
        for size, held in node
    ]
    return sizes, free


def columns(nodes: list[Zones]) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """[resource, zone, node]; zones that a node lacks are zeros."""
    made = np.zeros((len(NAMES), max(map(len, nodes)), len(nodes)), dtype=np.int64)
    for number, zones in enumerate(nodes):
        for zone, amounts in enumerate(zones):
            made[:, zone, number] = [amounts[name] for name in NAMES]
    return made


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(NODE, min_size=1, max_size=5), CLASSES, REQUEST)
def test_sets_lose_alike_in_columns_in_plain_amounts_and_in_words(
    nodes: list[list[tuple[tuple[int, ...], tuple[int, ...]]]],
    classes: list[DemandClass],
    request: tuple[int, int, int],
) -> None:
    wanted = dict(zip(NAMES, request, strict=True))
    given_zones = [as_zones(node) for node in nodes]
    table, plain = SetRoomTable(classes, NAMES), PlainSetRoom(classes)
    landing = [
        next(
            (
                number
                for number, zone in enumerate(free)
                if all(zone[name] >= amount for name, amount in wanted.items())
            ),
            0,
        )
        for _, free in given_zones
    ]
    lost = table.lost(
        np.array(request),
        np.array(landing),
        columns([free for _, free in given_zones]),
        columns([sizes for sizes, _ in given_zones]).astype(np.float64),
    )
    for number, (sizes, free) in enumerate(given_zones):
        place = landing[number]
        if any(free[place][name] < amount for name, amount in wanted.items()):
            continue
        rest = [dict(zone) for zone in free]
        rest[place] = {name: amount - wanted[name] for name, amount in rest[place].items()}
        expected = sum(
            room_in_words(each, sizes, free) - room_in_words(each, sizes, rest) for each in classes
        )
        by_id = dict(enumerate(sizes))
        assert plain.lost(dict(enumerate(free)), place, wanted, by_id) == expected
        assert (0 if lost is None else lost[number]) == expected


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(NODE, min_size=1, max_size=5), CLASSES)
def test_places_in_sets_are_what_they_hold_in_whole_numbers(
    nodes: list[list[tuple[tuple[int, ...], tuple[int, ...]]]], classes: list[DemandClass]
) -> None:
    given_zones = [as_zones(node) for node in nodes]
    counts, empty = SetRoomTable(classes, NAMES).places(
        columns([free for _, free in given_zones]),
        columns([sizes for sizes, _ in given_zones]).astype(np.float64),
    )
    for counted, row in ((counts, 1), (empty, 0)):
        expected = [
            sum(
                min(total[name] // amount for name, amount in each.amounts)
                for pair in given_zones
                for total in sets_in_words(dict(each.amounts), pair[0], pair[row])
            )
            for each in classes
        ]
        assert counted.tolist() == expected
