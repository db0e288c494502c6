"""Too few to take every zone: a cheap sufficient test beside unsettled pods.

Each unsettled part stands in one zone. To keep a part of the pod out, others must take enough of every zone that would
hold it; if even the largest of them, counted anew for each zone, are not enough in number, one zone surely remains.
"""

from __future__ import annotations

from collections.abc import Sequence

from services.scheduler.deciding.feasibility.branches import Bounds, fits
from services.scheduler.deciding.feasibility.crowd import Crowd, Item, Ranks
from services.scheduler.deciding.shape import Part
from shared.domain.resources import Amounts


def one_zone_remains(parts: Sequence[Part], lower: Bounds, crowd: Crowd) -> bool:
    """True when each part surely finds a zone. Parts before it count as others. False says nothing.

    `lower` charges the crowd in all its zones; items without zones stay charged. Not for pods with init containers.
    """
    base, others, count = crowd.gone(lower), crowd.ranks, len(crowd)
    for part in parts:
        if not _remains(part.amounts, base, others, count):
            return False
        if part is not parts[-1]:
            others, count = others.beside(part.amounts), count + 1
    return True


def everyone_finds_a_zone(lower: Bounds, crowd: Crowd, newcomer: Sequence[Item]) -> bool:
    """True when each of the crowd surely finds a zone although all others and the `newcomer` may come before it.

    `lower` charges the crowd but not the newcomer. False says nothing."""
    if not crowd.settled or not all(item.zones for item in newcomer):
        return False
    base, everyone = crowd.gone(lower), crowd.ranks
    for item in newcomer:
        everyone = everyone.beside(item.at_most)
    asked = {tuple(item.at_most.items()): item.at_most for item in crowd.items}
    return all(_remains(amounts, base, everyone, len(crowd) + len(newcomer) - 1) for amounts in asked.values())


def _remains(asked: Amounts, base: Bounds, others: Ranks, most: int) -> bool:
    """True when more than `most` others would be needed to take every zone that fits."""
    needed = 0
    for zone in base.values():
        if fits(asked, zone):
            needed += min([others.needed(name, zone[name] - amount) for name, amount in asked.items()])
            if needed > most:
                return True
    return False
