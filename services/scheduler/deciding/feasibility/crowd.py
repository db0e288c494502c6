"""Unsettled items together: what they would give back, and what the largest of them ask for.

A search tells the items apart one after the other; each step leaves a crowd with one item less, which is made from the one
before it and kept, because other pods meet the same crowd. Must not know where the items are put.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

import msgspec

from shared.domain.resources import Amounts
from shared.ledger.state import ZoneAmounts
from shared.ledger.view import restore, subtract


class Item(msgspec.Struct, frozen=True, gc=False):
    """What an unproven pod takes together, and where it may be. `charged` is what the lower bound subtracts for it.

    Present, it holds at most `at_most` and at least `at_least` in one of `zones`; without zones, anything up to `charged`.
    """

    charged: ZoneAmounts
    zones: tuple[int, ...] = ()
    at_most: Amounts = {}
    at_least: Amounts = {}


class Ranks:
    """By resource the amounts that some pods ask for, as sums of the largest ones: how many pods does it take?"""

    __slots__ = ("_largest", "_sums")

    def __init__(self, amounts: Mapping[str, list[int]]) -> None:
        """`amounts` in ascending order of their negatives: the largest first."""
        self._largest = amounts
        self._sums = {name: list(accumulate(-each for each in many)) for name, many in amounts.items()}

    @classmethod
    def of(cls, many: Iterable[Amounts]) -> Ranks:
        """Of all these pods."""
        found: dict[str, list[int]] = {}
        for amounts in many:
            for name, amount in amounts.items():
                found.setdefault(name, []).append(-amount)
        return cls({name: sorted(each) for name, each in found.items()})

    def beside(self, amounts: Amounts) -> Ranks:
        """With one pod more."""
        found = {name: list(many) for name, many in self._largest.items()}
        for name, amount in amounts.items():
            insort(found.setdefault(name, []), -amount)
        return Ranks(found)

    def without(self, amounts: Amounts) -> Ranks:
        """With one pod less, which must be one of them."""
        found = {name: list(many) for name, many in self._largest.items()}
        for name, amount in amounts.items():
            found[name].remove(-amount)
        return Ranks(found)

    def needed(self, name: str, slack: int) -> int:
        """How many of the largest take more than `slack` together; one more than there are when all do not."""
        return bisect_right(self._sums.get(name, ()), slack) + 1


class Crowd:
    """Items with zones, in the order in which they are told apart. `given` is what they give back by zone, `ranks` what they ask
    for. `settled` says that there is nobody else. Read only.

    Items without zones stay charged: whatever they hold lies between the bounds, and what holds between wide bounds holds between
    narrower ones.
    """

    __slots__ = ("_rest", "given", "items", "ranks", "settled")

    def __init__(self, items: Sequence[Item], given: ZoneAmounts, ranks: Ranks, settled: bool) -> None:
        self.items, self.given, self.ranks, self.settled = items, given, ranks, settled
        self._rest: Crowd | None = None

    @classmethod
    def of(cls, items: Sequence[Item]) -> Crowd:
        """Those of these items that have zones."""
        movable = [item for item in items if item.zones]
        given: ZoneAmounts = {}
        for item in movable:
            for zone, amounts in item.charged.items():
                target = given.setdefault(zone, {})
                for name, amount in amounts.items():
                    target[name] = target.get(name, 0) + amount
        return cls(movable, given, Ranks.of(item.at_most for item in movable), len(movable) == len(items))

    def __len__(self) -> int:
        return len(self.items)

    def rest(self) -> Crowd:
        """Without the first item."""
        if self._rest is None:
            first = self.items[0]
            given = {zone: dict(amounts) for zone, amounts in self.given.items()}
            subtract(given, first.charged)
            self._rest = Crowd(self.items[1:], given, self.ranks.without(first.at_most), self.settled)
        return self._rest

    def gone(self, lower: Mapping[int, Amounts]) -> ZoneAmounts:
        """The bound without any of them."""
        free = {zone: dict(amounts) for zone, amounts in lower.items()}
        restore(free, self.given)
        return free


NOBODY = Crowd.of(())
