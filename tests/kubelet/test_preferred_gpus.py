"""What NVIDIA's device plugin prefers, against its algorithm written out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.kubelet.masks import mask_of
from shared.kubelet.preferred_gpus import MACHINE, PRODUCT, REPLICAS, Places, preferred, scores_of

PLACES: Places = tuple((gpu, gpu // 4, f"p{gpu // 2}") for gpu in range(8))
DGX1 = {PRODUCT: "Tesla-V100-SXM2-32GB", MACHINE: "DGX-1"}
T4 = {PRODUCT: "Tesla-T4"}


@pytest.mark.parametrize(
    ("available", "count", "result"),
    [((0, 2, 4, 5), 2, (4, 5)), ((0, 4, 5, 6), 2, (5, 6)), ((0, 3, 1), 2, (0, 3)),
     ((0, 1, 4), 2, (0, 4))],
)  # fmt: skip
def test_the_cases_of_its_source(
    available: tuple[int, ...], count: int, result: tuple[int, ...]
) -> None:
    scores = scores_of(DGX1, PLACES)
    assert scores is not None
    assert preferred(mask_of(available), count, scores) == {mask_of(result)}


def divisions(gpus: tuple[int | None, ...], count: int) -> Iterator[list[tuple[int | None, ...]]]:
    if count == len(gpus):
        yield [gpus]
        return
    padding = gpus.count(None)
    for others in combinations(gpus[1:], count - 1):
        chosen, rest = (gpus[0], *others), list(gpus)
        if chosen.count(None) in (0, padding):
            for gpu in chosen:
                rest.remove(gpu)
            yield from ([chosen, *more] for more in divisions(tuple(rest), count))


def first_preferred(gpus: Sequence[int], count: int, scores: tuple[tuple[int, ...], ...]) -> int:
    """Return the choice for GPUs in this order."""

    def score(chosen: tuple[int | None, ...]) -> int:
        return sum(
            scores[a][b] for a, b in combinations(chosen, 2) if a is not None and b is not None
        )

    if count == 1:
        return 1 << gpus[0]
    padded = (*gpus, *[None] * (-len(gpus) % count))
    best = max(divisions(padded, count), key=lambda division: sum(map(score, division)))
    return mask_of(gpu for gpu in max(best, key=score) if gpu is not None)


@settings(max_examples=150, deadline=None)
@given(
    gpus=st.permutations(range(8)),
    size=st.integers(1, 8),
    count=st.integers(1, 8),
    places=st.lists(st.tuples(st.sampled_from((0, 1, None)), st.sampled_from("abc")), min_size=8),
    labels=st.sampled_from((DGX1, T4)),
)
def test_the_choice_is_one_of_these(
    gpus: list[int],
    size: int,
    count: int,
    places: list[tuple[int | None, str]],
    labels: dict[str, str],
) -> None:
    scores = scores_of(labels, tuple((gpu, *places[gpu]) for gpu in range(8)))
    assert scores is not None
    free = gpus[: min(size, 6)]
    answers = preferred(mask_of(free), count, scores)
    assert bool(answers) == (count <= len(free))
    if answers:
        assert first_preferred(free, count, scores) in answers
        assert all(chosen.bit_count() == count for chosen in answers)


@pytest.mark.parametrize(
    "labels",
    [{}, {PRODUCT: "Tesla-V100-SXM2-32GB"}, {PRODUCT: "NVIDIA-A100-PCIE-40GB"},
     {PRODUCT: "Tesla-T4-SHARED"}, {**T4, REPLICAS: "4"}],
)  # fmt: skip
def test_other_machines_and_shared_gpus_are_not_known(labels: dict[str, str]) -> None:
    assert scores_of(labels, PLACES) is None


def test_gpus_on_one_switch_come_before_others_and_equal_ones_are_all_returned() -> None:
    scores = scores_of({PRODUCT: "NVIDIA-H100-80GB-HBM3"}, PLACES)
    assert scores is not None
    assert preferred(0b11111111, 2, scores) == {0b11, 0b1100, 0b110000, 0b11000000}
    assert preferred(0b11010101, 2, scores) == {0b11000000}
    assert preferred(0b10101, 2, scores) == {0b101}
