"""Affinity masks: sets of NUMA node ids as integers (bit i = node i), in the kubelet's order of
enumeration.

The kubelet walks all 1-subsets, then all 2-subsets, and so on, each in lexicographic order of node
id (kubelet 1.36, bitmask.IterateBitMasks). This module must not know hints, CPUs or memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import combinations

MAX_NODES = 16
"""Largest NUMA node count that this model enumerates (2^16 masks); a real kubelet does not finish far earlier."""


def mask_of(nodes: Iterable[int]) -> int:
    """The mask of the given node ids."""
    mask = 0
    for node in nodes:
        mask |= 1 << node
    return mask


@lru_cache(maxsize=4096)
def nodes_of(mask: int) -> tuple[int, ...]:
    """The node ids in a mask, ascending."""
    return tuple(node for node in range(mask.bit_length()) if mask >> node & 1)


@lru_cache(maxsize=64)
def enumerate_masks(nodes: tuple[int, ...]) -> tuple[int, ...]:
    """Every non-empty mask over `nodes` (ascending ids), in the kubelet's order."""
    sizes = range(1, len(nodes) + 1)
    return tuple(mask_of(chosen) for size in sizes for chosen in combinations(nodes, size))


@lru_cache(maxsize=64)
def mask_sizes(nodes: tuple[int, ...]) -> tuple[int, ...]:
    """The node count of every mask, in enumeration order."""
    return tuple(mask.bit_count() for mask in enumerate_masks(nodes))


@lru_cache(maxsize=64)
def _sum_plan(nodes: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """For each mask of two or more nodes: the index of the mask without its last node, and that
    node's position.
    """
    masks = enumerate_masks(nodes)
    index = {mask: at for at, mask in enumerate(masks)}
    position = {node: at for at, node in enumerate(nodes)}
    wide = masks[len(nodes) :]
    return tuple(
        (index[mask ^ 1 << (last := mask.bit_length() - 1)], position[last]) for mask in wide
    )


def mask_sums(nodes: tuple[int, ...], amounts: Sequence[int]) -> list[int]:
    """The sum of per-node `amounts` (same order as `nodes`) over every mask, in enumeration order."""
    sums = list(amounts)
    append = sums.append
    for shorter, last in _sum_plan(nodes):
        append(sums[shorter] + amounts[last])
    return sums


def narrower(left: int, right: int) -> bool:
    """True when `left` has fewer nodes, or as many and is the smaller integer
    (bitmask.IsNarrowerThan).
    """
    return (left.bit_count(), left) < (right.bit_count(), right)
