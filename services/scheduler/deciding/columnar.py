"""By how much arrays of nodes grow that are full: at 20,000 nodes doubling would leave 40 % of them unused."""

from __future__ import annotations

LEAST = 64
PART = 4


def grown(capacity: int) -> int:
    """The next size of arrays that hold so many nodes: a quarter more."""
    return capacity + max(LEAST, capacity // PART)
