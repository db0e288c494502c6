"""The resources that init containers keep, computed once per pod class, equal those computed for
each pod by the plain rule.
"""

from __future__ import annotations

from collections.abc import Sequence

import hypothesis.strategies as st
from hypothesis import given, settings

from shared.domain.demand import ContainerDemand, kept_init_cpu, peak
from shared.domain.pod import ContainerKind
from shared.domain.report import Placement, Report, ZonedAmount
from shared.domain.resources import CPU, Amounts, is_memory
from shared.ledger.charge import WHOLE_POD, apart
from shared.ledger.confirmation import _stays, held_zones, manager_of, residual
from shared.ledger.state import Charge, ZoneAmounts
from tests.fixtures.examples import examples

KINDS: tuple[ContainerKind, ...] = ("init", "init", "sidecar", "app")
UID, GPU = "uid-a", "example.com/gpu"


def plain(charge: Charge, listed: Sequence[Placement], report: Report) -> ZoneAmounts:
    """Return the residual, computed step by step from the beginning."""
    init = [part for part in charge.demand if part.kind == "init"]
    if not init:
        return {}
    shown = {part.name for part in init} <= {placement.container for placement in listed}
    others = peak([part for part in charge.demand if part.kind != "init"])
    kept: Amounts = {
        name: amount - others.get(name, 0) for name, amount in peak(charge.demand).items()
    }
    kept[CPU] = (
        0 if shown else max(kept.get(CPU, 0), kept_init_cpu(charge.demand, apart(charge.possible)))
    )
    kept = {name: amount for name, amount in kept.items() if amount > 0 and not is_memory(name)}
    hidden = held_zones(
        item for item in report.hidden if item.pod_uid == charge.uid and not item.pod
    )
    if hidden or any(placement.pod_uid == charge.uid for placement in listed):
        kept = {
            name: amount
            for name, amount in kept.items()
            if manager_of(name) not in report.checkpoints
        }
    anywhere = {zone for zones in charge.possible.values() for zone in zones}
    near = set(held_zones(listed)) or anywhere
    zones = {
        zone: {name: amount for name, amount in held.items() if manager_of(name)}
        for zone, held in hidden.items()
    }
    for name, amount in kept.items():
        for zone in near if _stays(name, charge.demand, report) else near | anywhere:
            zones.setdefault(zone, {})[name] = amount
    figured = charge.is_admitted or "memory" in report.checkpoints
    for name in {name for part in init for name in part.amounts if is_memory(name) and not figured}:
        for zone in near | anywhere:
            zones.setdefault(zone, {})[name] = max(part.amounts.get(name, 0) for part in init)
    return zones


def amounts() -> st.SearchStrategy[Amounts]:
    return st.dictionaries(
        st.sampled_from((CPU, "memory", GPU)),
        st.integers(1, 4).map(lambda many: many * 1000),
        max_size=3,
    )


def held(uids: Sequence[str], pod: str) -> st.SearchStrategy[Placement]:
    items = st.dictionaries(st.integers(0, 2), amounts(), max_size=2).map(
        lambda zones: tuple(
            ZonedAmount(name, (zone,), amount)
            for zone, item in zones.items()
            for name, amount in item.items()
        )
    )
    return st.builds(
        Placement,
        st.just("ns" if pod else ""),
        st.just(pod),
        st.sampled_from("012"),
        items,
        pod_uid=st.sampled_from(uids),
    )


@st.composite
def scenes(draw: st.DrawFn) -> tuple[Charge, tuple[Placement, ...], Report]:
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=3))
    demand = tuple(
        ContainerDemand(str(zone_id), kind, draw(amounts())) for zone_id, kind in enumerate(kinds)
    )
    some = st.sets(st.integers(0, 2), min_size=1).map(lambda zones: tuple(sorted(zones)))
    possible = draw(st.dictionaries(st.sampled_from((WHOLE_POD, "0", "1")), some, max_size=3))
    charge = Charge(UID, "ns/a", 1, demand, possible, runs_at=draw(st.sampled_from((0, 1))))
    report = Report(
        "n1",
        "boot",
        1,
        policy=draw(st.sampled_from(("single-numa-node", "restricted", "best-effort", "none"))),
        scope=draw(st.sampled_from(("container", "pod"))),
        checkpoints=draw(st.sampled_from(((), ("cpu",), ("cpu", "memory", "devices")))),
        hidden=tuple(
            draw(st.lists(held((UID, "uid-b"), draw(st.sampled_from(("", "a")))), max_size=2))
        ),
    )
    return charge, tuple(draw(st.lists(held(("", UID), "a"), max_size=3))), report


@given(scenes())
@settings(max_examples=examples(200), deadline=None)
def test_what_init_containers_keep_is_what_the_plain_rule_says(
    scene: tuple[Charge, tuple[Placement, ...], Report],
) -> None:
    expected_zones = residual(*scene)
    assert expected_zones == plain(*scene)
    assert list(expected_zones) == sorted(expected_zones), "a state has one form"
    assert all(list(amounts) == sorted(amounts) for amounts in expected_zones.values())
