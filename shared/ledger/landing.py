"""Where a pod could land on a node, and what is charged for that: worked out once for all pods of a
kind.

The cycle asks before it reserves and every fold asks again, and the answer stays as long as the
node's upper bound does, which reservations leave as it is. A bounded memo of pure functions:
forgetting it changes nothing. What it returns is read only.
"""

from __future__ import annotations

from typing import NamedTuple

from shared.domain.demand import ContainerDemand
from shared.domain.report import Report
from shared.ledger.charge import Possible, charge_zones, possible_zones
from shared.ledger.state import ZoneAmounts

REMEMBERED = 4096
"""Landings that are remembered; beyond them all are forgotten and worked out again."""


class Landing(NamedTuple):
    """Container name -> zones where it could land (`possible_zones`), and what that charges to each
    zone (`charge_zones`).
    """

    possible: Possible
    zones: ZoneAmounts


class _Known(NamedTuple):
    """What a landing was worked out from: these very values, never changed in place."""

    demand: tuple[ContainerDemand, ...]
    report: Report
    free_max: ZoneAmounts
    landing: Landing


_known: dict[tuple[int, int], _Known] = {}


def landing(demand: tuple[ContainerDemand, ...], report: Report, free_max: ZoneAmounts) -> Landing:
    """The landing of a pod that demands this on a node with this basis report and this upper bound."""
    key = id(demand), id(free_max)
    known = _known.get(key)
    if (
        known is not None
        and known.demand is demand
        and known.free_max is free_max
        and known.report is report
    ):
        return known.landing
    if len(_known) >= REMEMBERED:
        _known.clear()
    possible = possible_zones(demand, report, free_max)
    found = Landing(possible, charge_zones(demand, possible, tuple(free_max), report))
    _known[key] = _Known(demand, report, free_max, found)
    return found
