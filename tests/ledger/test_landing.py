"""A cached landing (the possible zones and the charge of a pod) equals a computed one."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.domain.demand import ContainerDemand
from shared.domain.policies import POLICIES
from shared.domain.report import Report, Zone, ZoneResource
from shared.domain.resources import Amounts
from shared.ledger import charge as charging
from shared.ledger.charge import Landing, charge_zones, landing, possible_zones
from shared.ledger.state import ZoneAmounts

amounts = st.dictionaries(st.sampled_from(["cpu", "memory"]), st.integers(1, 8), min_size=1)


def _report(policy: str, zones: Sequence[int]) -> Report:
    resources = {name: ZoneResource(8, 8, 8) for name in ("cpu", "memory")}
    return Report(
        "n",
        "boot",
        1,
        "e",
        zones=tuple(Zone(zone, resources) for zone in zones),
        placements=(),
        policy=policy,
        scope="container",
        tracked=("cpu", "memory"),
    )


def _anew(demand: tuple[ContainerDemand, ...], report: Report, free_max: ZoneAmounts) -> Landing:
    possible = possible_zones(demand, report, free_max)
    return Landing(possible, charge_zones(demand, possible, tuple(free_max), report))


@given(
    st.lists(st.lists(amounts, min_size=1, max_size=3), min_size=1, max_size=3),
    st.lists(
        st.tuples(st.sampled_from(POLICIES), st.lists(amounts, min_size=1, max_size=3)),
        min_size=1,
        max_size=3,
    ),
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=20),
)
def test_earlier_questions_do_not_change_a_landing(
    pods: list[list[Amounts]], nodes: list[tuple[str, list[Amounts]]], asked: list[tuple[int, int]]
) -> None:
    demands = [
        tuple(ContainerDemand(f"c{index}", "app", amount) for index, amount in enumerate(parts))
        for parts in pods
    ]
    reports = [_report(policy, range(len(free))) for policy, free in nodes]
    uppers: list[ZoneAmounts] = [dict(enumerate(free)) for _, free in nodes]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(charging, "REMEMBERED", 2)
        for pod, node in asked:
            of = demands[pod % len(demands)], reports[node % len(nodes)], uppers[node % len(nodes)]
            assert landing(*of) == _anew(*of)


def test_a_raised_bound_gives_a_new_landing() -> None:
    demand, report = (
        (ContainerDemand("c", "app", {"cpu": 4}),),
        _report("single-numa-node", range(2)),
    )
    full: ZoneAmounts = {0: {"cpu": 8}, 1: {"cpu": 2}}
    freed: ZoneAmounts = {0: {"cpu": 8}, 1: {"cpu": 8}}
    assert landing(demand, report, full).possible == {"c": (0,)}
    assert landing(demand, report, freed).possible == {"c": (0, 1)}


def test_a_report_of_another_policy_gives_a_new_landing() -> None:
    demand: tuple[ContainerDemand, ...] = (ContainerDemand("c", "app", {"cpu": 4}),)
    free_max: ZoneAmounts = {0: {"cpu": 8}, 1: {"cpu": 2}}
    assert landing(demand, _report("single-numa-node", range(2)), free_max).possible == {"c": (0,)}
    assert landing(demand, _report("none", range(2)), free_max).possible == {"": (0, 1)}
