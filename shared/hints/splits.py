"""Ways to take an amount out of several zones or groups, where which of them give how much is not
known.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

MOST = 256
"""Ways that are told apart, enough for any choice of 4 out of 8 zones; one with more of them is beyond any budget."""


class TooManyChoicesError(Exception):
    """More choices than are told apart."""


class TooManyWaysError(TooManyChoicesError):
    """The manager does not refuse, in more ways than are told apart."""


def splits(amount: int, rooms: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Every way to take `amount` from rooms of these sizes, the first rooms first."""
    if not rooms:
        if not amount:
            yield ()
        return
    rest = sum(rooms[1:])
    for first in range(min(amount, rooms[0]), max(0, amount - rest) - 1, -1):
        for others in splits(amount - first, rooms[1:]):
            yield (first, *others)


def ways(amount: int, rooms: Sequence[int]) -> list[tuple[int, ...]]:
    """The same as a list. Raises TooManyWaysError."""
    found: list[tuple[int, ...]] = []
    for each in splits(amount, rooms):
        if len(found) == MOST:
            raise TooManyWaysError
        found.append(each)
    return found
