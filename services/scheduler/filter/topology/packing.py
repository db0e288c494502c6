"""The bound of `covering.py` in arrays, for crowds: all seekers at once.

Arithmetic is that of 64 bits. Amounts beyond what machines have count as more than is asked for, or
less than is free, and large ones are counted in units, what is taken rounded up and what is needed
down: so the bound says yes here and there less often. Must not know pods, the ledger or hint
providers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from services.scheduler.filter.topology.covering import WHOLE, Bounds, Part
from services.scheduler.snapshot.columnar import Bools, Ints
from shared.domain.resources import Amounts, is_device

MOST_AMOUNT = 1 << 60
"""Of a resource: sums of two are exact."""

MOST_UNITS = 1 << 32
"""Of a resource, when shares are made: products are exact."""

MOST_WEIGHT = 1 << 20
"""Of a zone: what all parts cover of it stays exact."""

AT_ONCE = 1 << 18
"""Numbers that are looked at together."""


class Packing(NamedTuple):
    """Parts, and the zones among which they are to stand. `asked` and `take` are [part, resource];
    what zones have beside all parts at least (`base`) and at most (`rooms`) is [zone, resource]. No
    zone has any of the last resource, which has no name."""

    names: tuple[str, ...]
    asked: Ints
    take: Ints
    base: Ints
    rooms: Ints

    @classmethod
    def of(cls, parts: Sequence[Part], base: Bounds, rooms: Bounds) -> Packing:
        """In the order of `parts`, and of the zones in `base`."""
        names = tuple(sorted({name for free in base.values() for name in free}))
        empty = np.zeros((0, len(names) + 1), dtype=np.int64)
        least, most = (
            _rows(list(base.values()), names, MOST_AMOUNT),
            _rows([rooms.get(zone, {}) for zone in base], names),
        )
        return cls(names, empty, empty, least, most).beside(parts)

    def beside(self, parts: Sequence[Part]) -> Packing:
        """With these parts more."""
        asked, take = (
            _rows(each, self.names)
            for each in ([part.asked for part in parts], [part.take for part in parts])
        )
        return self._replace(
            asked=np.concatenate((self.asked, asked)), take=np.concatenate((self.take, take))
        )


def _rows(many: Sequence[Amounts], names: tuple[str, ...], most: int = MOST_AMOUNT + 1) -> Ints:
    """What is more than counts is less than is asked for, and not more than may be free."""
    rows = []
    for amounts in many:
        row = [amounts.get(name, 0) for name in names]
        row.append(sum(amounts.values()) - sum(row))
        if max(row) > most or min(row) < -most:
            row = [max(-most, min(most, amount)) for amount in row]
        rows.append(row)
    return np.array(rows, dtype=np.int64).reshape(-1, len(names) + 1)


def each_is_left_a_zone(packing: Packing, seekers: Sequence[int]) -> bool:
    """True when some zone surely remains for each of these parts, wherever all others stand. False
    says nothing.
    """
    stands = _may_stand(packing)
    step = max(1, AT_ONCE // max(1, packing.base.size * len(packing.asked)))
    chunks = (
        np.array(seekers[first : first + step], dtype=np.int64)
        for first in range(0, len(seekers), step)
    )
    return all(_cannot_be_covered(packing, stands, chunk) for chunk in chunks)


def _may_stand(packing: Packing) -> Bools:
    """[zone, part]. Devices may have gone that a part holds: where it may stand is told by CPUs and
    memory.
    """
    told = [at for at, name in enumerate(packing.names) if not is_device(name)]
    found: Bools = np.all(packing.asked[:, told] <= packing.rooms[:, None, told], axis=2)
    return found


def _cannot_be_covered(packing: Packing, stands: Bools, seekers: Ints) -> bool:
    """Arrays are [seeker, zone, ...], zones in the order of what others cover of them, those that
    do not hold it last.
    """
    asked, numbers = packing.asked[seekers, None, :], np.arange(len(seekers))
    needs = packing.base - asked + 1
    holds = ((needs > 0) | (asked == 0)).all(axis=2)
    needs = np.where((asked > 0) & holds[:, :, None], needs, 0)
    shares = _shares(packing.take, needs) * stands
    shares[numbers, :, seekers] = 0
    order = np.argsort(
        np.where(holds, shares.sum(axis=2), len(packing.take) * WHOLE + 1), axis=1, kind="stable"
    )
    shares, weights = (
        shares[numbers[:, None], order],
        _weights(needs, holds)[numbers[:, None], order],
    )
    covered = np.maximum.accumulate(weights[:, :, :, None] * shares[:, :, None, :], axis=1).sum(
        axis=3
    )
    return bool((covered < np.cumsum(weights, axis=1) * WHOLE).any(axis=(1, 2)).all())


def _shares(take: Ints, needs: Ints) -> Ints:
    """What each part covers of each zone [seeker, zone, part]; a need of 0 does not count. In units
    that keep products exact, what is taken is rounded up, and what is needed down."""
    found = np.zeros((*needs.shape[:2], len(take)), dtype=np.int64)
    for taken, need in zip(take.T, np.moveaxis(needs, 2, 0)[..., None], strict=True):
        largest = max(int(taken.max(initial=0)), int(need.max(initial=0)))
        if taken.any() and need.any():
            unit = -(-largest // MOST_UNITS)
            share = -(taken // -unit * WHOLE // np.maximum(need // unit, 1))
            np.maximum(found, share, out=found, where=need > 0)
    return np.minimum(found, WHOLE)


def _weights(needs: Ints, holds: Bools) -> Ints:
    """Of each zone by kind [seeker, zone, kind]: 1, and its need of each resource, in units that
    keep sums exact.
    """
    units = np.maximum(1, -(-needs.max(axis=1, keepdims=True, initial=0) // MOST_WEIGHT))
    return np.concatenate((holds[:, :, None], needs // units), axis=2)
