"""Containers that have other zones or CPUs than were reserved for their pod."""

from __future__ import annotations

import pytest

from shared.domain.report import Placement, ZonedAmount
from shared.domain.zone_allocation import ZoneAllocation
from shared.owned.drift import drift_of

SHARED = {0: {"cpu": 500, "memory": 1}}


def listed(cpus: str, zone: int, memory: tuple[int, ...] = ()) -> Placement:
    amounts = [ZonedAmount("cpu", (zone,), 0, cpus)] if cpus else []
    amounts += [ZonedAmount("memory", memory, 0)] if memory else []
    return Placement("ns", "p", "c", tuple(amounts), "uid-p")


@pytest.mark.parametrize(
    ("allocation", "placement", "drift"),
    [
        (ZoneAllocation(SHARED), listed("0-3", 0), ""),
        (ZoneAllocation(SHARED), listed("4-7", 1), "of zones that were not reserved (1)"),
        (ZoneAllocation(SHARED), listed("", 0), ""),
        (ZoneAllocation({}, "2-3"), listed("2-3", 1), ""),
        (ZoneAllocation({}, "2-3"), listed("2-4", 1), "CPUs 2-4, reserved are 2-3"),
        (ZoneAllocation(SHARED), listed("1", 0, (0, 1)), ""),
        (ZoneAllocation(SHARED, memory_policy="bind"), listed("1", 0, (0,)), ""),
        (ZoneAllocation(SHARED, memory_policy="bind"), listed("1", 0, (0, 1)), "memory of zones"),
    ],
)
def test_a_difference_is_named(
    allocation: ZoneAllocation, placement: Placement, drift: str
) -> None:
    text = drift_of(allocation, (placement,))
    assert drift in text
    assert bool(drift) == bool(text)
