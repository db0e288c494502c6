"""One more hint provider in the registry changes filter result, charge, reservation, prediction and
explanation.

The provider has licences in zone 1 only, although the report shows some in each zone
(`tests/hints/licences.py`).
"""

from __future__ import annotations

import pytest

from services.scheduler.core import CoreConfig
from services.scheduler.handlers import fold_of
from services.scheduler.snapshot.result import Placed
from shared.domain.pod import Pod
from shared.hints import registry
from tests.hints.licences import HOME, LICENCE, Licences
from tests.scheduler.cycle_worlds import World, amounts, container, guaranteed, report, zone


@pytest.fixture
def with_licences(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "PROVIDERS", (*registry.PROVIDERS, Licences()))


def asking(name: str, cpu: int = 2) -> Pod:
    return guaranteed(name, container("c", amounts(cpu=cpu, memory=1, **{LICENCE: 1})))


def world(home_cpu: int = 8) -> World:
    new_world = World()
    capacity = amounts(cpu=8, memory=16, **{LICENCE: 2})
    allocatable = {"cpu": 64_000, "memory": 1 << 40, "pods": 110, LICENCE: 8}
    new_world.observe("n", allocatable=allocatable)
    zones = (
        zone(0, capacity),
        zone(HOME, amounts(cpu=home_cpu, memory=16, **{LICENCE: 2}), capacity),
    )
    new_world.report(report("n", zones, tracked=("cpu", "memory", LICENCE)))
    return new_world


def placed(world: World, pod: Pod) -> Placed:
    outcome = world.cluster.place(pod)
    assert isinstance(outcome, Placed)
    return outcome


def test_without_it_amounts_decide_and_zone_0_is_predicted() -> None:
    judged = world()
    assert placed(judged, asking("p")).predicted == {"c": (0,)}
    judged.bound(asking("q"), "n")
    assert judged.ledger.nodes["n"].charges["q"].possible == {"c": (0, 1)}


@pytest.mark.usefixtures("with_licences")
def test_prediction_reservation_and_charge_follow_it() -> None:
    judged = world()
    assert placed(judged, asking("p")).predicted == {"c": (HOME,)}
    assert set(judged.cluster.assume(placed(judged, asking("p")), asking("p"))) == {HOME}
    judged.bound(asking("q"), "n")
    assert judged.ledger.nodes["n"].charges["q"].possible == {"c": (HOME,)}


@pytest.mark.usefixtures("with_licences")
def test_the_verdict_follows_it_though_the_other_zone_has_room() -> None:
    judged = world(home_cpu=1)
    assert judged.cluster.verdict(asking("p"), "n") is not None
    assert isinstance(world().cluster.place(asking("p")), Placed)


@pytest.mark.usefixtures("with_licences")
def test_reservations_use_it_up_and_the_refusal_names_it() -> None:
    judged = world()
    for name in ("p", "q"):
        judged.cluster.assume(placed(judged, asking(name, cpu=1)), asking(name, cpu=1))
    refusal = judged.cluster.verdict(asking("r", cpu=1), "n")
    assert refusal is not None
    assert refusal.resource == LICENCE


def test_it_is_part_of_the_key_of_snapshots(monkeypatch: pytest.MonkeyPatch) -> None:
    key_before = fold_of(CoreConfig()).fingerprint
    monkeypatch.setattr(registry, "PROVIDERS", (*registry.PROVIDERS, Licences()))
    assert fold_of(CoreConfig()).fingerprint != key_before
