"""The merge equals a walk over every combination of hints, and its rules hold on examples."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.owned.hints import Hint, Hints
from shared.owned.merge import Zones, merge
from tests.owned.machines import policies
from tests.owned.reference import merged_by_product

EVERY = 0b111
MASKS = sorted(range(1, EVERY + 1), key=lambda mask: (mask.bit_count(), mask))
USES = ("idle", "single", "shared")

# Hints as providers make them: at most one for each mask, the narrowest masks first.
hint_lists = st.lists(
    st.none() | st.tuples(st.booleans(), st.sampled_from([0, 30, 60])),
    min_size=len(MASKS),
    max_size=len(MASKS),
).map(
    lambda drawn: [
        Hint(mask, *hint) for mask, hint in zip(MASKS, drawn, strict=True) if hint is not None
    ]
)
resources = st.tuples(hint_lists, hint_lists, st.sampled_from([None, []]) | hint_lists).map(
    lambda lists: dict(zip(("cpu", "memory", "gpu"), lists, strict=True))
)
providers = st.tuples(resources) | st.tuples(resources, st.none())


@settings(max_examples=150)
@given(
    policies,
    providers,
    st.sampled_from(["", "Required"]),
    st.tuples(*[st.sampled_from(USES)] * 3),
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
    hints: Hints = {"cpu": [Hint(0b011, True), Hint(0b110, True)]}
    uses = {0: "single", 1: "idle", 2: "idle"}
    assert merge("restricted", [hints], Zones(EVERY, uses, "Required")).mask == 0b110  # type: ignore[arg-type]
    hints = {"cpu": [Hint(0b011, True)]}
    assert not merge("restricted", [hints], Zones(EVERY, uses, "Required")).is_admitted  # type: ignore[arg-type]


def test_a_pod_without_zoned_requests_takes_no_zone_and_passes_under_exclusivity() -> None:
    uses = dict.fromkeys(range(3), "single")
    merged = merge("restricted", [None], Zones(EVERY, uses, "Required"))  # type: ignore[arg-type]
    assert merged.is_admitted
