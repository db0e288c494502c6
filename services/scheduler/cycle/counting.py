"""Too few to take every zone: a cheap sufficient test beside unsettled pods.

Each unsettled part stands in one zone. To keep a part of the pod out, others must take enough of every zone that would
hold it; if even the largest of them, counted anew for each zone, are not enough in number, one zone surely remains.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from services.scheduler.cycle.branches import Bounds, fits
from services.scheduler.cycle.shape import Part
from services.scheduler.cycle.unsettled import Item
from shared.domain.resources import Amounts
from shared.ledger.view import restore


def one_zone_remains(parts: Sequence[Part], lower: Bounds, items: Sequence[Item]) -> bool:
    """True when each part surely finds a zone. Parts before it count as others. False says nothing.

    `lower` charges the items in all their zones; items without zones stay charged. Not for pods with init containers.
    """
    movable = [item for item in items if item.zones]
    base = {zone: dict(held) for zone, held in lower.items()}
    for item in movable:
        restore(base, item.charged)
    others = [item.at_most for item in movable]
    for part in parts:
        if not _remains(part.amounts, base, others):
            return False
        others.append(part.amounts)
    return True


def everyone_finds_a_zone(lower: Bounds, items: Sequence[Item], newcomer: Sequence[Item]) -> bool:
    """True when each of `items` surely finds a zone although all others and the `newcomer` may come before it.

    `lower` charges the items but not the newcomer. False says nothing."""
    everyone = [*items, *newcomer]
    if not all(item.zones for item in everyone):
        return False
    base = {zone: dict(held) for zone, held in lower.items()}
    for item in items:
        restore(base, item.charged)
    ranks = _ranks([item.at_most for item in everyone])
    asked = {tuple(item.at_most.items()): item.at_most for item in items}
    return all(_taken(amounts, base, ranks, len(everyone) - 1) for amounts in asked.values())


def _remains(asked: Amounts, base: Bounds, others: Sequence[Amounts]) -> bool:
    return _taken(asked, base, _ranks(others), len(others))


def _ranks(others: Sequence[Amounts]) -> dict[str, list[int]]:
    names = {name for each in others for name in each}
    return {name: sorted([each.get(name, 0) for each in others], reverse=True) for name in names}


def _taken(asked: Amounts, base: Bounds, ranks: Mapping[str, list[int]], most: int) -> bool:
    """True when more than `most` others would be needed to take every zone that fits."""
    needed = 0
    for zone in base.values():
        if fits(asked, zone):
            needed += min([_count(zone[name] - amount, ranks.get(name, ())) for name, amount in asked.items()])
            if needed > most:
                return True
    return False


def _count(slack: int, amounts: Sequence[int]) -> int:
    """How many of the largest amounts are more than `slack`; one more than there are when all are not."""
    for count, amount in enumerate(amounts, start=1):
        slack -= amount
        if slack < 0:
            return count
    return len(amounts) + 1
