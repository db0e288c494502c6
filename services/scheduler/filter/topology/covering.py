"""Can the others on a node keep a part out of every zone? Bin covering, bounded by fractions.

To keep it out of a zone, the others there must take more of some resource than the zone has beside
what the part asks for: the zone's need. Let one part cover of a zone what it takes of a need, the
largest such share over the resources: at most the whole zone, and nothing of one where it cannot
stand. A blocked zone is covered by those that stand in it, and each stands in one zone. So if every
zone of a set is blocked, then for any weights of zones their sum is at most what all parts cover,
each counted where its weighted share is largest. Where that fails for one set and some weights, a
zone is left. Shares are integers, rounded up.

The sets are the zone that is hardest to block, the two hardest, and so on. Zones weigh the same, or
what they need of a resource: the former tells how many parts there are, the latter adds up what
they take. Plain loops, which suit a handful of parts; crowds have arrays (`packing.py`). Must not
know pods, the ledger or hint providers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from shared.domain.resources import Amounts, is_device

Bounds = Mapping[int, Amounts]

WHOLE = 1 << 30
"""The share of a part that blocks a zone alone."""

_COUNTED = ""
"""No resource's name: every zone weighs the same."""


class Part(NamedTuple):
    """What a zone must hold for a part to stand there (`asked`), and the most that it takes of the
    zone then.
    """

    asked: Amounts
    take: Amounts


class _Zone(NamedTuple):
    """A zone that would hold the seeker: what the others cover of it together and each by itself,
    and its needs.
    """

    covered: int
    shares: list[int]
    needs: Amounts


def is_left_a_zone(asked: Amounts, base: Bounds, rooms: Bounds, others: Sequence[Part]) -> bool:
    """True when some zone surely remains for what is `asked`, wherever the others stand: zones have
    beside them at least `base`, and at most `rooms`. False says nothing."""
    wanted = {name: amount for name, amount in asked.items() if amount}
    zones = []
    for zone, free in base.items():
        needs = {name: free.get(name, 0) - amount + 1 for name, amount in wanted.items()}
        if min(needs.values(), default=1) > 0:
            room = rooms.get(zone, {})
            shares = [
                _share(part.take, needs) if _may_stand(part.asked, room) else 0 for part in others
            ]
            zones.append(_Zone(sum(shares), shares, needs))
    zones.sort(key=_covered)
    if not zones or zones[0].covered < WHOLE:
        return bool(zones)
    return any(
        _uncovered(zones[:count], name)
        for count in range(2, len(zones) + 1)
        for name in (_COUNTED, *wanted)
    )


def _covered(zone: _Zone) -> int:
    return zone.covered


def _may_stand(asked: Amounts, room: Amounts) -> bool:
    """Devices may have gone that a part holds: where it may stand is told by CPUs and memory."""
    for name, amount in asked.items():
        if amount > room.get(name, 0) and not is_device(name):
            return False
    return True


def _share(take: Amounts, needs: Amounts) -> int:
    share = 0
    for name, need in needs.items():
        taken = take.get(name, 0)
        if taken >= need:
            return WHOLE
        share = max(share, -(-taken * WHOLE // need))
    return share


def _uncovered(zones: Sequence[_Zone], name: str) -> bool:
    """A zone alone needs no weight."""
    weights = [zone.needs.get(name, 1) for zone in zones]
    weighted = [
        [weight * share for share in zone.shares]
        for weight, zone in zip(weights, zones, strict=True)
    ]
    covered: int = sum(map(max, zip(*weighted, strict=True)))
    return covered < sum(weights) * WHOLE
