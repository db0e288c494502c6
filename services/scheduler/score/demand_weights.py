"""What room for each of the things that pods ask for weighs: the more ask for it and the fewer
places are left, the more.

A place lost where a thousand are left is nothing, the last one is everything: so demand is divided
by the places that are left. Who waits counts many times: only it is sure to need a place. Weights
are powers of two, so that they rarely change. Exact integers. Must not know pods, nodes or the log.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from services.scheduler.score.strategies.strategy import Items
from services.scheduler.select.room import NOWHERE
from shared.events.scheduling_events import Wanted

LISTED = 12
"""Wants that nodes are ranked by."""
CANDIDATES = 48
"""Wants, those most asked for, for which room is counted."""
WAITS = 16
"""Who waits counts as so many that run."""
HEAVIEST = 4096
FINENESS = 1 << 20

Room = Callable[[Sequence[Items]], Sequence[int]]
"""How many more of each the cluster's zones would hold, or NOWHERE: no room is kept for what could never have any."""


def weighed(
    running: Mapping[Items, int], waiting: Mapping[Items, int], room: Room
) -> tuple[Wanted, ...]:
    """The wants by weight, heaviest first; those that weigh next to nothing beside the heaviest are
    left out.
    """
    demand = {
        items: running.get(items, 0) + WAITS * waiting.get(items, 0)
        for items in {*running, *waiting}
    }
    asked = sorted(demand, key=lambda items: (-demand[items], items))[:CANDIDATES]
    places = {
        items: held for items, held in zip(asked, room(asked), strict=True) if held != NOWHERE
    }
    raw = {items: demand[items] * FINENESS // (1 + held) for items, held in places.items()}
    heaviest = max(raw.values(), default=0)
    weights = {
        items: _power_of_two(weight * HEAVIEST // heaviest)
        for items, weight in raw.items()
        if heaviest
    }
    chosen = sorted(
        (items for items in asked if weights.get(items)), key=lambda items: (-weights[items], items)
    )[:LISTED]
    return tuple(
        Wanted(
            dict(items), weights[items], running.get(items, 0), waiting.get(items, 0), places[items]
        )
        for items in chosen
    )


def _power_of_two(weight: int) -> int:
    """The largest one that is not larger; 0 for 0."""
    return 1 << (weight.bit_length() - 1) if weight else 0
