"""Every branch that a kubelet's admission could take: is the pod admitted on all of them?

Free amounts are known only as bounds. A part (container, or whole pod) may land in any zone that `upper` fits and that has
none below it that surely fits, must have one that `lower` fits, and is subtracted on each branch. Kubelet 1.36: an init
container's CPUs and devices stay with the pod and force the zone of what reuses them; its memory can be reused in its own
zone. The number of steps is bounded.
This module must not know nodes, reports or other pods.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from services.scheduler.deciding.shape import Part
from shared.domain.resources import CPU, Amounts, is_memory

Bounds = Mapping[int, Amounts]
Reuse = dict[tuple[str, int], tuple[int, int, bool]]
"""(resource, zone) -> least and most that is left for reuse there, and whether a pick of just as much takes it all."""


class LimitError(Exception):
    """More outcomes than may be checked."""


class Budget:
    """Steps left; shared by all searches for one pod on one node."""

    __slots__ = ("left",)

    def __init__(self, steps: int) -> None:
        self.left = steps

    def spend(self) -> None:
        """One step. Raises LimitError when none is left."""
        if self.left <= 0:
            raise LimitError
        self.left -= 1


def fits(amounts: Amounts, zone: Amounts) -> bool:
    """True when the zone holds at least `amounts`."""
    for name, asked in amounts.items():  # noqa: SIM110 - the hottest line of a warm decision
        if zone.get(name, 0) < asked:
            return False
    return True


def admitted(parts: Sequence[Part], lower: Bounds, upper: Bounds, budget: Budget) -> bool:
    """True when each part finds one zone on every branch. Raises LimitError."""
    if len(parts) == 1:
        return any(fits(parts[0].amounts, zone) for zone in lower.values())
    return _walk(list(parts), _rests(parts), 0, dict(lower), dict(upper), {}, budget)


def _rests(parts: Sequence[Part]) -> list[Amounts | None]:
    """For each index the sum of what is left to place, None where an init container may force zones."""
    rests: list[Amounts | None] = []
    total: Amounts = {}
    plain = True
    for part in reversed(parts):
        plain = plain and part.kind != "init"
        total = {name: total.get(name, 0) + part.amounts.get(name, 0) for name in {*total, *part.amounts}}
        rests.append(total if plain else None)
    return rests[::-1]


def _walk(
    parts: list[Part],
    rests: list[Amounts | None],
    at: int,
    lower: dict[int, Amounts],
    upper: dict[int, Amounts],
    reuse: Reuse,
    budget: Budget,
) -> bool:
    part = parts[at]
    budget.spend()
    forced, drawn = _pulls(part, reuse)
    if not any(fits(part.amounts, held) and drawn <= {zone} for zone, held in lower.items()):
        return False
    rest = rests[at]
    if at == len(parts) - 1 or (rest is not None and not reuse and any(fits(rest, held) for held in lower.values())):
        return True
    for zone in _branches(part, lower, upper, forced, drawn):
        below, above, kept = _placed(part, zone, lower, upper, reuse)
        if not _walk(parts, rests, at + 1, below, above, kept, budget):
            return False
    return True


def _branches(part: Part, lower: Bounds, upper: Bounds, forced: set[int], drawn: set[int]) -> list[int]:
    """Zones that the part could get: the lowest that fits (kubelet 1.36: of single zones, equally narrow, the lowest is
    preferred), so none above one that surely fits, but for those that may draw the part."""
    found: list[int] = []
    surely = False
    for zone in sorted(upper):
        if forced <= {zone} and (not surely or zone in drawn) and fits(part.amounts, upper[zone]):
            found.append(zone)
            surely = surely or fits(part.amounts, lower[zone])
    return found


def _pulls(part: Part, reuse: Reuse) -> tuple[set[int], set[int]]:
    """Zones that reusable CPUs or devices surely force, and those that they may force."""
    if not reuse:
        return set(), set()
    concerned = [(zone, least, most) for (name, zone), (least, most, _) in reuse.items() if name in part.amounts]
    return {zone for zone, least, _ in concerned if least > 0}, {zone for zone, _, most in concerned if most > 0}


def _placed(
    part: Part, zone: int, lower: dict[int, Amounts], upper: dict[int, Amounts], reuse: Reuse
) -> tuple[dict[int, Amounts], dict[int, Amounts], Reuse]:
    if part.kind == "init":
        return lower, upper, _kept(part, zone, reuse)
    below, above = dict(lower), dict(upper)
    below[zone], above[zone] = minus(lower[zone], part.amounts), minus(upper[zone], part.amounts)
    return below, above, _reused(part, zone, reuse)


def minus(held: Amounts, taken: Amounts) -> Amounts:
    """What is left; may be negative."""
    left = dict(held)
    for name, amount in taken.items():
        left[name] = left.get(name, 0) - amount
    return left


def _kept(part: Part, zone: int, reuse: Reuse) -> Reuse:
    """After an init container: what it holds stays with the pod for reuse."""
    kept = dict(reuse)
    for name, amount in part.amounts.items():
        if is_memory(name):
            continue
        least, most, whole = reuse.get((name, zone), (0, 0, True))
        if name == CPU:
            same = whole and most in (0, amount)
            kept[name, zone] = (max(least, amount), amount if same else most + amount, same)
        else:
            kept[name, zone] = (max(least, amount), max(most, amount), False)
    return kept


def _reused(part: Part, zone: int, reuse: Reuse) -> Reuse:
    """After an app container or sidecar: what it took over is no longer there for reuse."""
    kept = dict(reuse)
    for name, amount in part.amounts.items():
        least, most, whole = reuse.get((name, zone), (0, 0, False))
        if name != CPU:
            most = max(0, most - amount)
        elif whole and most == amount:
            most = 0
        kept[name, zone] = (max(0, min(least, most) - (amount if most else 0)), most, False)
    return {key: held for key, held in kept.items() if held[1] > 0}
