"""The fractional bound of `feasibility/covering.py`, plainly: one seeker, one zone, one part and one resource after the other."""

from __future__ import annotations

from collections.abc import Sequence

from services.scheduler.deciding.feasibility.covering import WHOLE, Bounds, Part
from shared.domain.resources import Amounts, is_device

COUNTED = ""
"""No resource's name: every zone weighs the same."""

_Zone = tuple[int, list[int], Amounts]
"""The sum of the shares that parts cover of it, these shares, and its needs."""


def leaves_a_zone(asked: Amounts, base: Bounds, rooms: Bounds, others: Sequence[Part]) -> bool:
    """True when some zone surely remains for what is `asked`."""
    wanted = {name: amount for name, amount in asked.items() if amount}
    zones: list[_Zone] = []
    for zone, free in base.items():
        if all(free.get(name, 0) >= amount for name, amount in wanted.items()):
            needs = {name: free[name] - amount + 1 for name, amount in wanted.items()}
            shares = [_share(part, needs, rooms.get(zone, {})) for part in others]
            zones.append((sum(shares), shares, needs))
    zones.sort(key=lambda zone: zone[0])
    return any(_uncovered(zones[: at + 1], name) for at in range(len(zones)) for name in (COUNTED, *wanted))


def _share(part: Part, needs: Amounts, room: Amounts) -> int:
    if any(amount > room.get(name, 0) for name, amount in part.asked.items() if not is_device(name)):
        return 0
    return min(WHOLE, max((-(-part.take.get(name, 0) * WHOLE // need) for name, need in needs.items()), default=0))


def _uncovered(zones: Sequence[_Zone], name: str) -> bool:
    weights = [needs.get(name, 1) for _, _, needs in zones]
    parts = zip(*(shares for _, shares, _ in zones), strict=True)
    covered = sum(max(weight * share for weight, share in zip(weights, part, strict=True)) for part in parts)
    return covered < sum(weights) * WHOLE
