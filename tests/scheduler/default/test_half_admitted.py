"""A report taken in the middle of an admission: what the pod holds already counts as used, and the pod is there all the same."""

from __future__ import annotations

import pytest

from services.scheduler.deciding.feasibility.branches import Bounds, Budget, fits
from services.scheduler.deciding.feasibility.crowd import Crowd
from services.scheduler.deciding.feasibility.unsettled import admitted_in_every_outcome, items_of
from shared.domain.demand import ContainerDemand
from shared.domain.report import Placement, Report, Zone, ZonedAmount, ZoneResource
from shared.domain.resources import Amounts
from shared.ledger.state import Charge

GPU = "vendor/gpu"
HALF: Amounts = {"cpu": 6000, GPU: 2}


def report(policy: str, scope: str, free: dict[int, Amounts], held: tuple[ZonedAmount, ...]) -> Report:
    total = {"cpu": 15000, GPU: 4}
    zones = tuple(
        Zone(zone, {name: ZoneResource(total[name], total[name], amounts[name]) for name in amounts})
        for zone, amounts in free.items()
    )
    return Report("n", "b", 1, policy=policy, scope=scope, zones=zones, placements=(Placement("default", "half", "c", held),))


@pytest.mark.parametrize(
    ("policy", "scope", "part"),
    [("restricted", "pod", ""), ("single-numa-node", "pod", ""), ("single-numa-node", "container", "c")],
)
def test_its_alternatives_stay_possible(policy: str, scope: str, part: str) -> None:
    free: dict[int, Amounts] = {0: {"cpu": 5000, GPU: 2}, 1: {"cpu": 9000, GPU: 0}}
    seen = report(policy, scope, free, (ZonedAmount(GPU, (1,), 2),))
    zones = dict.fromkeys(free, HALF)
    charge = Charge("u", "default/half", 1, (ContainerDemand("c", "app", HALF),), {part: (0, 1)}, zones=zones)
    unsettled = items_of(charge, seen, seen.placements or ())
    assert [len(item.zones) for item in unsettled] == [2]
    lower: Bounds = {0: {"cpu": -1000, GPU: 0}, 1: {"cpu": 3000, GPU: -2}}

    def takes(cpu_milli: int) -> bool:
        def holds(low: Bounds, high: Bounds, _: Crowd) -> bool:
            return any(fits({"cpu": cpu_milli}, zone) for zone in low.values())

        return admitted_in_every_outcome(holds, lower, free, Crowd.of(unsettled), Budget(1000))

    assert not takes(6000)
    assert takes(3000)
