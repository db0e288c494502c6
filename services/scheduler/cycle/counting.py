"""Too few to take every zone: a cheap sufficient test beside unsettled pods.

Each unsettled part stands in one zone. To keep a part of the pod out, others must take enough of every zone that would
hold it; if even the largest of them, counted anew for each zone, are not enough in number, one zone surely remains.
"""

from __future__ import annotations

from collections.abc import Sequence

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


def _remains(asked: Amounts, base: Bounds, others: Sequence[Amounts]) -> bool:
    ranked = [(name, amount, sorted([each.get(name, 0) for each in others], reverse=True)) for name, amount in asked.items()]
    needed = 0
    for zone in base.values():
        if fits(asked, zone):
            needed += min([_count(zone[name] - amount, largest) for name, amount, largest in ranked])
            if needed > len(others):
                return True
    return False


def _count(slack: int, amounts: Sequence[int]) -> int:
    """How many of the largest amounts are more than `slack`; one more than there are when all are not."""
    for count, amount in enumerate(amounts, start=1):
        slack -= amount
        if slack < 0:
            return count
    return len(amounts) + 1
