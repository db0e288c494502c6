"""The bounded merge equals the kubelet's walk over all permutations, on hints of every shape."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from shared.kubelet import merge as merging
from shared.kubelet.hint import Hint
from shared.kubelet.masks import enumerate_masks, mask_of
from shared.kubelet.merge import filter_hints, merge_hints, single_node_hints
from shared.kubelet.topology_manager import TopologyManager, merge
from tests.fixtures.examples import examples
from tests.kubelet.naive_merge import naive_merge

NODE_SETS = st.sampled_from(
    [
        (0,),
        (0, 1),
        (0, 1, 2, 3),
        (0, 2, 5),
        tuple(range(6)),
        (1, 4),
        (0, 2, 40, 63),
        tuple(range(34)),
    ]
)


def hint_lists(max_size: int) -> st.SearchStrategy[list[list[Hint]]]:
    """Draw lists of hints, some with null, empty and out-of-range masks."""
    masks = st.one_of(
        st.none(),
        st.integers(0, 127),
        st.sampled_from([1, 2, 3, 15, 63, 1 << 40, 1 << 63 | 5, 1 << 63 | 1 << 40]),
    )
    hints = st.builds(Hint, masks, st.booleans())
    return st.lists(st.lists(hints, max_size=max_size), max_size=4)


def distances_over(nodes: tuple[int, ...], seed: int) -> dict[int, list[int]]:
    rng = random.Random(seed)
    return {node: [rng.choice([10, 11, 12, 20, 21]) for _ in range(64)] for node in nodes}


@settings(max_examples=examples(200), deadline=None)
@given(nodes=NODE_SETS, lists=hint_lists(6), seed=st.none() | st.integers(0, 9))
def test_equals_the_naive_permutation_merge(
    nodes: tuple[int, ...], lists: list[list[Hint]], seed: int | None
) -> None:
    distances = None if seed is None else distances_over(nodes, seed)
    default = mask_of(nodes)
    assert merge_hints(lists, default, distances) == naive_merge(lists, default, distances)


@settings(max_examples=examples(100), deadline=None)
@given(nodes=NODE_SETS, lists=hint_lists(6), seed=st.none() | st.integers(0, 9))
def test_equals_the_naive_merge_when_every_product_is_convolved(
    nodes: tuple[int, ...], lists: list[list[Hint]], seed: int | None
) -> None:
    distances = None if seed is None else distances_over(nodes, seed)
    default, small, limit = mask_of(nodes), merging._SMALL_PRODUCT, merging._COUNT_LIMIT
    merging._SMALL_PRODUCT, merging._COUNT_LIMIT = 0, 64
    try:
        assert merge_hints(lists, default, distances) == naive_merge(lists, default, distances)
    finally:
        merging._SMALL_PRODUCT, merging._COUNT_LIMIT = small, limit


@settings(max_examples=examples(60), deadline=None)
@given(seed=st.integers(0, 1 << 30), density=st.sampled_from([0.1, 0.5, 0.9]))
def test_equals_the_naive_merge_on_dense_lists_of_five_nodes(seed: int, density: float) -> None:
    rng, nodes = random.Random(seed), tuple(range(5))
    least = rng.randint(1, 5)
    lists = [
        [Hint(m, m.bit_count() == least) for m in enumerate_masks(nodes) if rng.random() < density]
        for _ in range(3)
    ]
    assert merge_hints(lists, 31) == naive_merge(lists, 31, None)


@settings(max_examples=examples(100), deadline=None)
@given(nodes=NODE_SETS, lists=hint_lists(6))
def test_single_numa_node_equals_the_naive_merge_of_single_node_hints(
    nodes: tuple[int, ...], lists: list[list[Hint]]
) -> None:
    default = mask_of(nodes)
    named: dict[str, list[Hint] | None] = {str(index): hints for index, hints in enumerate(lists)}
    naive = naive_merge(single_node_hints(filter_hints([named])), default, None)
    stored = Hint(None if naive.mask == default else naive.mask, naive.preferred)
    assert merge(TopologyManager("single-numa-node", "pod", default), [named]) == (
        stored,
        stored.preferred,
    )


def test_absent_opinions_are_no_constraint_and_empty_lists_are_a_refusal() -> None:
    assert filter_hints([None, {}, {"a": None, "b": []}]) == [
        [Hint(None, True)],
        [Hint(None, True)],
        [Hint(None, True)],
        [Hint(None, False)],
    ]


def test_no_provider_at_all_prefers_every_node() -> None:
    assert merge_hints([], 0b11) == Hint(0b11, True)


def test_many_full_lists_over_twelve_nodes_are_merged_where_permutations_could_not_be() -> None:
    masks = enumerate_masks(tuple(range(12)))
    lists = [[Hint(mask, False) for mask in masks if mask >> index & 1] for index in range(10)]
    assert merge_hints(lists, (1 << 12) - 1) == Hint(0b1, False)
