"""Ways to take an amount out of several zones or groups, each of which may give any part."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from functools import lru_cache
from itertools import islice

# Ways that a search follows: enough for any choice of 4 out of 8 zones. An allocation with more of
# them is beyond any budget of a search.
MOST = 256


class TooManyChoicesError(Exception):
    """More choices than a search follows."""


class TooManyWaysError(TooManyChoicesError):
    """The manager does not reject the container, in more ways than a search follows."""


class UndecidedStateError(TooManyChoicesError):
    """An answer depends on something that `state`, a manager's state, leaves open. `choices` are
    the same state with that decided, in every way."""

    def __init__(self, state: Hashable, choices: Sequence[Hashable]) -> None:
        super().__init__("the state is open")
        self.state, self.choices = state, choices


def splits(amount: int, rooms: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield every way to take `amount` from rooms of these sizes, the first rooms first."""
    if not rooms:
        if not amount:
            yield ()
        return
    rest = sum(rooms[1:])
    for first in range(min(amount, rooms[0]), max(0, amount - rest) - 1, -1):
        for others in splits(amount - first, rooms[1:]):
            yield (first, *others)


def ways(amount: int, rooms: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the same as a list. Raises TooManyWaysError."""
    all_ways = _ways(amount, tuple(rooms))
    if all_ways is None:
        raise TooManyWaysError
    return list(all_ways)


@lru_cache(maxsize=1 << 12)
def _ways(amount: int, rooms: tuple[int, ...]) -> tuple[tuple[int, ...], ...] | None:
    """Remembered, because states of one search differ in other managers. None for too many."""
    some_ways = tuple(islice(splits(amount, rooms), MOST + 1))
    return some_ways if len(some_ways) <= MOST else None
