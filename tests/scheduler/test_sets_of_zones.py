"""How many zones a part takes when they are empty, and which set of so many comes nearest: held
equal to trying every set.
"""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from services.scheduler.explain.alignment_refusal import _nearest_set, _nearest_zone
from services.scheduler.filter.topology.bounds import fits
from services.scheduler.snapshot.pod_class import AlignedPart
from services.scheduler.snapshot.zone_sizes import preferred_widths, size_in
from shared.domain.report import Report
from shared.domain.resources import Amounts, memory_of
from shared.ledger.state import ZoneAmounts
from tests.scheduler.cycle_worlds import report, zone

PAGES = "hugepages-2Mi"
AMOUNTS = st.fixed_dictionaries({name: st.integers(0, 9) for name in ("cpu", "memory", PAGES)})
ASKED = st.dictionaries(st.sampled_from(("cpu", "memory", PAGES)), st.integers(1, 20), min_size=1)


def widths(part: Amounts, report: Report) -> Amounts:
    """Return every set of zones, small sets first."""
    memory = memory_of(part)

    def fewest(asked: Amounts) -> int:
        for count in range(1, len(report.zones)):
            for chosen in combinations(report.zones, count):
                if all(
                    sum(size_in(each, name) for each in chosen) >= held
                    for name, held in asked.items()
                ):
                    return count
        return len(report.zones)

    return {name: fewest(memory if name in memory else {name: held}) for name, held in part.items()}


def nearest(
    free_min: ZoneAmounts, part: AlignedPart, count: int
) -> tuple[str, tuple[int, ...], int, str] | None:
    """Return the nearest of all sets of this many zones."""
    sets = list(combinations(sorted(free_min), min(count, len(free_min))))
    places = {
        at: {name: sum(max(0, free_min[each][name]) for each in chosen) for name in part.amounts}
        for at, chosen in enumerate(sets)
    }
    if any(fits(part.amounts, held) for held in places.values()):
        return None
    name, index, best, subject = _nearest_zone(places, part)
    return name, sets[index], best, subject


@given(st.lists(AMOUNTS, min_size=1, max_size=6), ASKED)
def test_the_fewest_zones_are_those_of_every_set(zones: list[Amounts], part: Amounts) -> None:
    node_report = report("n", [zone(at, held) for at, held in enumerate(zones)])
    assert preferred_widths(part, node_report) == widths(part, node_report)


@given(st.lists(AMOUNTS, min_size=1, max_size=6), ASKED, st.integers(1, 6))
def test_the_nearest_set_is_that_of_every_set(
    zones: list[Amounts], asked: Amounts, count: int
) -> None:
    part, free_min = (
        AlignedPart("c", "app", asked),
        {at: {name: held - 1 for name, held in each.items()} for at, each in enumerate(zones)},
    )
    assert _nearest_set(free_min, part, count) == nearest(free_min, part, count)
