"""Ranks: one integer that orders nodes by predicted zones first, then by the closeness of devices,
then by score.

A rank is the score (0 to 100) plus `CLOSER` for each step of closeness (`device_closeness`), less
`STEP` for each step of the spread (`predicted_spread`). Spread is 0 if each part of the pod gets
one zone. What a pod prefers adds at most 500 points to a rank and takes away at most 1,000: all
together is less than a step of the spread.
"""

from __future__ import annotations

# More than the most by which scores, closeness and preferences of two nodes differ.
STEP = 2048
# More than the most by which scores differ.
CLOSER = 128
CLOSEST = 2
# Above every rank, as in `kernel.h`.
OPTIMISTIC = CLOSEST * CLOSER + 101
# The largest spread; a wider one counts as this. A rank is an int32.
WIDEST = (1 << 16) - 1
# Below every rank.
RULED_OUT = -(1 << 28)


def rank_of(score: int, spread: int, closeness: int = 0) -> int:
    return score + closeness * CLOSER - spread * STEP


def score_of(rank: int) -> int:
    """Return the score of a rank; RULED_OUT stays so."""
    return rank if rank <= RULED_OUT else rank % CLOSER


def spread_of(rank: int) -> int:
    """Return the spread of a rank that is not ruled out."""
    return -(rank // STEP)


def band_of(rank: int) -> int:
    """Return a number that is lower if the spread is, or if the devices are nearer."""
    return -(rank // CLOSER)


def closeness_of(rank: int) -> int:
    return rank % STEP // CLOSER
