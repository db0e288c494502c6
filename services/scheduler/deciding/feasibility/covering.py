"""Can the others on a node keep a part out of every zone? Bin covering, bounded by fractions.

To keep it out of a zone, the others there must take more of some resource than the zone has beside what the part asks for: the
zone's need. Let one part cover of a zone what it takes of a need, the largest such share over the resources: at most the whole
zone, and nothing of one where it cannot stand. A blocked zone is covered by those that stand in it, and each stands in one zone.
So if every zone of a set is blocked, then for any weights of zones their sum is at most what all parts cover, each counted where
its weighted share is largest. Where that fails for one set and some weights, a zone is left. Shares are integers, rounded up.

Must not know pods, the ledger or hint providers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from shared.domain.resources import Amounts, is_device

Bounds = Mapping[int, Amounts]
_Zone = tuple[int, list[int], Amounts]
"""The sum of the shares that parts cover of it, these shares, and its needs."""

WHOLE = 1 << 30
"""The share of a part that blocks a zone alone."""

COUNTED = ""
"""No resource's name: every zone weighs the same."""


class Part(NamedTuple):
    """What a zone must hold for a part to stand there (`asked`), and the most that it takes of the zone then."""

    asked: Amounts
    take: Amounts


def leaves_a_zone(asked: Amounts, base: Bounds, rooms: Bounds, others: Sequence[Part]) -> bool:
    """True when some zone surely remains for what is `asked`. `base` is what zones have free beside the others, at least; `rooms`
    at most. False says nothing."""
    zones = []
    for zone, free in base.items():
        if all(free.get(name, 0) >= amount for name, amount in asked.items()):
            needs = {name: free[name] - amount + 1 for name, amount in asked.items()}
            shares = _shares(others, needs, rooms.get(zone, {}))
            zones.append((sum(shares), shares, needs))
    zones.sort(key=_covered)
    return any(_uncovered(zones, name) for name in (COUNTED, *asked))


def _shares(parts: Sequence[Part], needs: Amounts, room: Amounts) -> list[int]:
    """What each part covers of a zone. Devices may have gone that it holds: where it may stand is told by CPUs and memory."""
    wanted, found = list(needs.items()), []
    for part in parts:
        share, take = 0, part.take
        for name, need in wanted:
            share = max(share, -(-take.get(name, 0) * WHOLE // need))
        if share and any(amount > room.get(name, 0) for name, amount in part.asked.items() if not is_device(name)):
            share = 0
        found.append(min(WHOLE, share))
    return found


def _covered(zone: _Zone) -> int:
    return zone[0]


def _uncovered(zones: Sequence[_Zone], name: str) -> bool:
    """Is there one that nobody can block among the first zones, the first two, and so on, the hardest to block first? Zones weigh
    what they need of a resource, or are COUNTED: the former adds up what parts take, the latter how many they are."""
    total = 0
    most = [0] * len(zones[0][1]) if zones else []
    for _, shares, needs in zones:
        weight = needs.get(name, 1)
        total += weight * WHOLE
        most = [max(before, weight * share) for before, share in zip(most, shares, strict=True)]
        if sum(most) < total:
            return True
    return False
