"""Can others be placed so that no zone remains for a part? Placements are tried up to a limit.

1. The fractional bound (`pigeonhole`) often leaves doubt about a handful of parts and two zones.
   Then whole parts are placed: zone by zone, as few as block it, and the next zone by the rest.
2. Parts that are in one zone at the same time fit it together. Only what each holds in any case
   counts (`least`), without devices of which some may be lost.
3. Equal parts are one kind, by number. Beyond `MOST_PLACED` placed parts the answer is "perhaps".

Which order of admissions leads to a placement does not matter here: more placements are tried than
can be reached, so a part that always finds a zone is safe. Must not know nodes or pods.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from services.scheduler.filter.topology.bounds import fits
from shared.domain.resources import Amounts

# Parts that are placed in one question; the same question always ends the same way.
MOST_PLACED = 150

Vector = tuple[int, ...]


class Place(NamedTuple):
    """One part: the most that it takes of a zone, the least that it holds there, and the zones
    where it may be.
    """

    take: Amounts
    least: Amounts
    zones: Collection[int]


class _Kind(NamedTuple):
    """Equal parts: `zones` has bit i if they may be in zone i."""

    take: Vector
    least: Vector
    zones: int


class _Zone(NamedTuple):
    """What must be taken of one resource to block the zone, and the most that is held there."""

    needs: Vector
    room: Vector


class _OverLimitError(Exception):
    """More placements than are tried."""


def may_be_blocked(
    asked: Amounts,
    base: Mapping[int, Amounts],
    limits: Mapping[int, Amounts],
    parts: Sequence[Place],
) -> bool:
    """Return whether some placement of the parts blocks every zone that would hold `asked`, or too
    many would have to be tried. Zones have at least `base` free without the parts, and the parts
    in one hold at most `limits` together."""
    wanted = {name: amount for name, amount in asked.items() if amount}
    zones = [zone for zone, free in base.items() if fits(wanted, free)]
    names = sorted({name for limit in limits.values() for name in limit})
    kinds = Counter(
        _Kind(
            tuple([part.take.get(name, 0) for name in wanted]),
            (0, *[part.least.get(name, 0) for name in names]),
            sum(1 << bit for bit, zone in enumerate(zones) if zone in part.zones),
        )
        for part in parts
        if any(part.take.get(name) for name in wanted)
    )
    rows = [
        _Zone(
            tuple([base[zone].get(name, 0) - amount + 1 for name, amount in wanted.items()]),
            (0, *[limits.get(zone, {}).get(name, 0) for name in names]),
        )
        for zone in zones
    ]
    try:
        return _Search(rows, tuple(kinds)).blocks_from(0, tuple(kinds.values()))
    except _OverLimitError:
        return True


class _Search:
    def __init__(self, zones: Sequence[_Zone], kinds: Sequence[_Kind]) -> None:
        self._zones, self._kinds, self._left = zones, kinds, MOST_PLACED

    def blocks_from(self, index: int, counts: Vector) -> bool:
        """Return whether parts of these counts can block the zones from `index` on."""
        if index == len(self._zones):
            return True
        zone = self._zones[index]
        return self._fill(index, 0, counts, zone.needs, zone.room)

    def _fill(self, index: int, first: int, counts: Vector, needs: Vector, room: Vector) -> bool:
        """Place one more part in the zone, of kind `first` or a later one."""
        for number in range(first, len(self._kinds)):
            kind = self._kinds[number]
            if not counts[number] or not kind.zones >> index & 1:
                continue
            if self._left <= 0:
                raise _OverLimitError
            self._left -= 1
            room_beyond = _minus(room, kind.least)
            if min(room_beyond) < 0:
                continue
            fewer = (*counts[:number], counts[number] - 1, *counts[number + 1 :])
            rest = _minus(needs, kind.take)
            if min(rest) <= 0:
                if self.blocks_from(index + 1, fewer):
                    return True
            elif self._fill(index, number, fewer, rest, room_beyond):
                return True
        return False


def _minus(amounts: Vector, taken: Vector) -> Vector:
    return tuple([amount - take for amount, take in zip(amounts, taken, strict=True)])
