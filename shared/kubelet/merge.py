"""Merges hints into one affinity: the Topology Manager's choice, without a walk over every
permutation.

The kubelet builds the cartesian product of all hint lists and keeps one best mask under a total
order. So it is enough to know which masks the product can reach: exactly for preferred hints, and
by an AND-convolution of sets of masks for the others. Source: kubelet 1.36,
topologymanager/policy.go. This module does not know providers or resources.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from shared.kubelet.hint import Hint, Hints
from shared.kubelet.masks import mask_of, nodes_of

# NUMA node id -> distances to every node, in order of node id.
Distances = Mapping[int, Sequence[int]]

MaskSet = frozenset[int] | set[int]

_SMALL_PRODUCT = 1024
_COUNT_LIMIT = 1 << 62
_DONT_CARE = [Hint(None, True)]
_UNSATISFIABLE = [Hint(None, False)]


def filter_hints(providers: Iterable[Hints]) -> list[list[Hint]]:
    """Return one list per resource of each provider. No opinion becomes `(null, true)`, a refusal
    `(null, false)`.
    """
    lists: list[list[Hint]] = []
    for hints in providers:
        if not hints:
            lists.append(_DONT_CARE)
            continue
        for hint_list in hints.values():
            lists.append(_DONT_CARE if hint_list is None else hint_list or _UNSATISFIABLE)
    return lists


def single_node_hints(lists: list[list[Hint]]) -> list[list[Hint]]:
    """Keep only preferred hints of none or exactly one NUMA node. A list may become empty."""
    return [
        [h for h in hint_list if h.preferred and (h.mask is None or h.mask.bit_count() == 1)]
        for hint_list in lists
    ]


def merge_hints(
    lists: list[list[Hint]], default_mask: int, distances: Distances | None = None
) -> Hint:
    """Return the best hint of the product of `lists`; `(default_mask, False)` if no permutation
    shares a node.

    `distances` is given only under prefer-closest-numa-nodes. Equal node counts then compare by
    mean distance.
    """
    if not all(lists):
        return Hint(default_mask, False)
    preferred = {mask & default_mask for mask in _preferred_masks(lists, default_mask)} - {0}
    if preferred:
        return Hint(_narrowest(preferred, distances), True)
    masks = [{hint.mask for hint in hints} for hints in lists]
    reachable = _reachable(masks, default_mask)
    if not reachable:
        return Hint(default_mask, False)
    return Hint(_best_of(reachable, _widest_minimum(masks), distances), False)


def _preferred_masks(lists: list[list[Hint]], default_mask: int) -> set[int]:
    """Return the masks that permutations of preferred hints yield: all non-null masks must be the
    same.
    """
    by_list: list[set[int | None]] = [
        {hint.mask for hint in hints if hint.preferred} for hints in lists
    ]
    everywhere: set[int | None] = {default_mask}
    binding = [masks for masks in by_list if None not in masks]
    reached = binding[0].intersection(*binding[1:]) if binding else everywhere.union(*by_list)
    return {mask for mask in reached if mask is not None}


def _reachable(lists: list[set[int | None]], default_mask: int) -> MaskSet:
    """Every non-empty AND that the product can yield."""
    reached: set[int] = {default_mask}
    factors = (
        {default_mask if mask is None else mask & default_mask for mask in masks} for masks in lists
    )
    pending = sorted(factors, key=len)
    while pending and reached:
        if len(reached) * len(pending[0]) > _SMALL_PRODUCT:
            return _convolved([reached, *pending], default_mask)
        factor = pending.pop(0)
        reached = {unmerged & right for unmerged in reached for right in factor} - {0}
    return reached


def _convolved(factors: Sequence[MaskSet], default_mask: int) -> set[int]:
    """Return the AND-convolution by superset sums: permutations per exact AND, zero means
    unreachable.

    Nodes that only the default mask has are always together, so they count as one node, after the
    others. The rest are renumbered without gaps.
    """
    named = 0
    for factor in factors:
        for mask in factor:
            named |= 0 if mask == default_mask else mask
    groups = [1 << node for node in nodes_of(named)]
    if default_mask & ~named:
        groups.append(default_mask & ~named)
    bits = len(groups)
    if groups != [1 << index for index in range(bits)]:

        def dense_mask(mask: int) -> int:
            return mask_of(index for index, group in enumerate(groups) if mask & group)

        dense = [frozenset(map(dense_mask, factor)) for factor in factors]
        return {
            sum(groups[index] for index in nodes_of(mask))
            for mask in _convolved(dense, (1 << bits) - 1)
        }
    counts, bound = np.ones(1 << bits, dtype=np.int64), 1
    for factor in factors:
        if bound * len(factor) >= _COUNT_LIMIT:
            counts, bound = _superset_sums(_exact(counts, bits) > 0, bits), 1 << bits
        counts, bound = counts * _superset_sums(_indicator(factor, bits), bits), bound * len(factor)
    return set(np.flatnonzero(_exact(counts, bits)).tolist()) - {0}


def _indicator(masks: MaskSet, bits: int) -> npt.NDArray[np.bool_]:
    marked = np.zeros(1 << bits, dtype=np.bool_)
    marked[list(masks)] = True
    return marked


def _superset_sums(marked: npt.NDArray[np.bool_], bits: int) -> npt.NDArray[np.int64]:
    sums = marked.astype(np.int64)
    for bit in range(bits):
        halves = sums.reshape(-1, 2, 1 << bit)
        halves[:, 0, :] += halves[:, 1, :]
    return sums


def _exact(sums: npt.NDArray[np.int64], bits: int) -> npt.NDArray[np.int64]:
    exact = sums.copy()
    for bit in range(bits):
        halves = exact.reshape(-1, 2, 1 << bit)
        halves[:, 0, :] -= halves[:, 1, :]
    return exact


def _widest_minimum(lists: list[set[int | None]]) -> int:
    """Return the largest, over the lists, of the size of the list's narrowest mask
    (maxOfMinAffinityCounts).
    """
    sizes = ([mask.bit_count() for mask in masks if mask is not None] for masks in lists)
    return max((min(hint_list) for hint_list in sizes if hint_list), default=0)


def _best_of(masks: MaskSet, wanted_size: int, distances: Distances | None) -> int:
    """Return the non-preferred choice: the wanted size, else the largest below it, else the
    smallest above it.
    """
    sizes = {mask.bit_count() for mask in masks}
    below = [size for size in sizes if size <= wanted_size]
    size = max(below) if below else min(sizes)
    return min((mask for mask in masks if mask.bit_count() == size), key=_order(distances))


def _narrowest(masks: MaskSet, distances: Distances | None) -> int:
    if len(masks) == 1:
        return next(iter(masks))
    size = min(mask.bit_count() for mask in masks)
    return min((mask for mask in masks if mask.bit_count() == size), key=_order(distances))


def _order(distances: Distances | None) -> Callable[[int], tuple[int, int]]:
    """Order masks of one size by mean distance if requested (for equal sizes the sum decides), then
    by the integer.
    """
    if distances is None:
        return lambda mask: (0, mask)
    return lambda mask: (sum(distances[a][b] for a in nodes_of(mask) for b in nodes_of(mask)), mask)
