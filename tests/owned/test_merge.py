"""The merge equals a walk over every combination of hints, and its rules hold on examples."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.owned.hints import Hint, Hints
from shared.owned.merge import Zones, merge
from tests.owned.machines import policies
from tests.owned.reference import merged_by_product

EVERY = 0b1111
USES = ("idle", "single", "shared")


@st.composite
def hint_lists(draw: st.DrawFn) -> list[Hint] | None:
    """Hints as providers make them: one a mask, the narrowest masks first."""
    if draw(st.integers(0, 5)) == 0:
        return None
    masks = draw(st.sets(st.integers(1, EVERY), max_size=6))
    order = sorted(masks, key=lambda mask: (mask.bit_count(), mask))
    return [Hint(mask, draw(st.booleans()), draw(st.integers(0, 3)) * 30) for mask in order]


@st.composite
def providers(draw: st.DrawFn) -> list[Hints | None]:
    resources = st.dictionaries(st.sampled_from(["cpu", "memory", "gpu"]), hint_lists())
    return draw(st.lists(st.none() | resources, max_size=2))


@settings(max_examples=150)
@given(
    policies,
    providers(),
    st.sampled_from(["", "Required"]),
    st.tuples(*[st.sampled_from(USES)] * 4),
)
def test_the_merge_is_the_best_of_all_combinations(policy, hints, exclusive, uses) -> None:  # type: ignore[no-untyped-def]
    zones = Zones(EVERY, dict(enumerate(uses)), exclusive)
    ours, plain = merge(policy, hints, zones), merged_by_product(policy, hints, zones)
    is_strict = policy != "best-effort"
    impossible = any(listed == [] for by_name in hints for listed in (by_name or {}).values())
    assert ours.is_admitted == (not is_strict or (plain.preferred and not impossible))
    if ours.is_admitted:
        assert (ours.preferred, ours.score) == (plain.preferred, plain.score)
        assert (ours.mask or EVERY).bit_count() == (plain.mask or EVERY).bit_count()


@pytest.mark.parametrize(
    ("policy", "masks", "expected"),
    [
        ("restricted", [0b0011, 0b0101], 0b0101),  # the higher score before the lower number
        ("single-numa-node", [0b0001, 0b0010], 0b0010),
        ("best-effort", [0b0001, 0b0010], 0b0010),
    ],
)
def test_the_score_decides_between_masks_of_one_width(
    policy: str, masks: list[int], expected: int
) -> None:
    hints: Hints = {"cpu": [Hint(mask, True, score) for score, mask in enumerate(masks)]}
    assert merge(policy, [hints], Zones(EVERY)).mask == expected  # type: ignore[arg-type]


def test_exclusivity_keeps_wide_pods_off_zones_of_single_ones() -> None:
    hints: Hints = {"cpu": [Hint(0b0011, True), Hint(0b1100, True)]}
    uses = {0: "single", 1: "idle", 2: "idle", 3: "idle"}
    assert merge("restricted", [hints], Zones(EVERY, uses, "Required")).mask == 0b1100  # type: ignore[arg-type]
    hints = {"cpu": [Hint(0b0011, True)]}
    assert not merge("restricted", [hints], Zones(EVERY, uses, "Required")).is_admitted  # type: ignore[arg-type]


def test_a_pod_without_zoned_requests_takes_no_zone_and_passes_under_exclusivity() -> None:
    uses = dict.fromkeys(range(4), "single")
    merged = merge("restricted", [None], Zones(EVERY, uses, "Required"))  # type: ignore[arg-type]
    assert merged.is_admitted
