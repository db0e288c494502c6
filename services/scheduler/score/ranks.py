"""Ranks: one integer that orders nodes by predicted zones first and by score second.

A rank is the score (0 to 100) less `STEP` for each step of the spread (`predicted_zones`). A node
that puts each part of the pod into one zone has spread 0, so that its rank is its score. What a pod
prefers adds at most 500 points to a rank and takes away at most 1,000, which is less than a step.
"""

from __future__ import annotations

# More than the most by which scores and preferences of two nodes differ.
STEP = 2048
# The largest spread; a wider one counts as this. A rank is an int32.
WIDEST = (1 << 16) - 1
# Below every rank.
RULED_OUT = -(1 << 28)


def rank_of(score: int, spread: int) -> int:
    return score - spread * STEP


def score_of(rank: int) -> int:
    """Return the score of a rank; RULED_OUT stays so."""
    return rank if rank <= RULED_OUT else rank % STEP


def spread_of(rank: int) -> int:
    """Return the spread of a rank that is not ruled out."""
    return -(rank // STEP)
