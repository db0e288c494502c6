"""Affinity masks: sets of NUMA node ids as integers (bit i = node i), in the kubelet's order of
enumeration.

The kubelet enumerates all 1-subsets, then all 2-subsets, and so on, each in lexicographic order of
node id (kubelet 1.36, bitmask.IterateBitMasks). This module does not know hints, CPUs or memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import combinations

# The most NUMA nodes whose subsets this model enumerates (2^16 masks). Only nodes that can hold
# something count: the kubelet's CPU hints run over nodes with CPUs, its device hints over nodes
# with such devices, its memory hints over all nodes.
MAX_NODES = 16

# Node ids in the kubelet's bit masks (uint64).
MASK_BITS = 64


class TooManyNodesError(ValueError):
    """More NUMA nodes than this model enumerates."""


def mask_of(nodes: Iterable[int]) -> int:
    mask = 0
    for node in nodes:
        mask |= 1 << node
    return mask


@lru_cache(maxsize=4096)
def nodes_of(mask: int) -> tuple[int, ...]:
    return tuple(node for node in range(mask.bit_length()) if mask >> node & 1)


@lru_cache(maxsize=64)
def enumerate_masks(nodes: tuple[int, ...]) -> tuple[int, ...]:
    """Return every non-empty mask over `nodes` (ascending ids), in the kubelet's order.

    Raises TooManyNodesError beyond `MAX_NODES`.
    """
    if len(nodes) > MAX_NODES:
        raise TooManyNodesError(f"{len(nodes)} NUMA nodes, at most {MAX_NODES} are enumerated")
    sizes = range(1, len(nodes) + 1)
    return tuple(mask_of(chosen) for size in sizes for chosen in combinations(nodes, size))


@lru_cache(maxsize=64)
def mask_sizes(nodes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the node count of every mask, in enumeration order."""
    return tuple(mask.bit_count() for mask in enumerate_masks(nodes))


@lru_cache(maxsize=64)
def _sum_plan(nodes: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """Return, for each mask of two or more nodes, the index of the mask without its last node, and
    that node's position.
    """
    masks = enumerate_masks(nodes)
    index = {mask: position_in_order for position_in_order, mask in enumerate(masks)}
    position = {node: position_in_order for position_in_order, node in enumerate(nodes)}
    wide = masks[len(nodes) :]
    return tuple(
        (index[mask ^ 1 << (last := mask.bit_length() - 1)], position[last]) for mask in wide
    )


def mask_sums(nodes: tuple[int, ...], amounts: Sequence[int]) -> list[int]:
    """Return the sum of per-node `amounts` (same order as `nodes`) for every mask, in enumeration
    order.
    """
    sums = list(amounts)
    append = sums.append
    for shorter, last in _sum_plan(nodes):
        append(sums[shorter] + amounts[last])
    return sums


def narrower(mask: int, reference: int) -> bool:
    """Return whether `mask` has fewer nodes, or as many and is the smaller integer
    (bitmask.IsNarrowerThan).
    """
    return (mask.bit_count(), mask) < (reference.bit_count(), reference)
