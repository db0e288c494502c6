"""The merge as the kubelet does it: every permutation of hints, candidate against candidate
(policy.go, kubelet 1.36).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from shared.kubelet.hint import Hint
from shared.kubelet.masks import nodes_of
from shared.kubelet.merge import Distances


def naive_merge(
    lists: Sequence[Sequence[Hint]], default_mask: int, distances: Distances | None
) -> Hint:
    """Return the result of HintMerger.Merge."""
    wanted = _best_non_preferred_count(lists)
    best: Hint | None = None
    for permutation in itertools.product(*lists):
        best = _compare(best, _merge_permutation(permutation, default_mask), wanted, distances)
    return best or Hint(default_mask, False)


def _merge_permutation(permutation: Sequence[Hint], default_mask: int) -> Hint:
    masks = [hint.mask for hint in permutation if hint.mask is not None]
    merged = default_mask
    for mask in masks:
        merged &= mask
    preferred = all(hint.preferred for hint in permutation) and len(set(masks)) <= 1
    return Hint(merged, preferred)


def _best_non_preferred_count(lists: Sequence[Sequence[Hint]]) -> int:
    minima = [[hint.mask.bit_count() for hint in hints if hint.mask is not None] for hints in lists]
    return max((min(sizes) for sizes in minima if sizes), default=0)


def _compare(
    current: Hint | None, candidate: Hint, wanted: int, distances: Distances | None
) -> Hint | None:
    new = candidate.mask or 0
    if not new:
        return current
    if current is None:
        return candidate
    if current.preferred != candidate.preferred:
        return current if current.preferred else candidate
    old = current.mask or 0
    closer = candidate if _better(new, old, distances) else current
    if current.preferred or old.bit_count() > wanted:
        return closer
    if old.bit_count() == wanted:
        return closer if new.bit_count() == wanted else current
    return _compare_below(current, candidate, wanted, closer)


def _compare_below(current: Hint, candidate: Hint, wanted: int, closer: Hint) -> Hint:
    old, new = (current.mask or 0).bit_count(), (candidate.mask or 0).bit_count()
    if new > wanted:
        return current
    if new == wanted or new > old:
        return candidate
    return current if new < old else closer


def _better(new: int, old: int, distances: Distances | None) -> bool:
    if new.bit_count() != old.bit_count() or distances is None:
        return (new.bit_count(), new) < (old.bit_count(), old)
    return (_mean_distance(new, distances), new) < (_mean_distance(old, distances), old)


def _mean_distance(mask: int, distances: Distances) -> float:
    nodes = nodes_of(mask)
    return float(sum(distances[a][b] for a in nodes for b in nodes)) / len(nodes) ** 2
