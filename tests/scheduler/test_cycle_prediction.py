"""If nothing is unconfirmed, the prediction equals the exact kubelet's choice."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.scheduler.filter.topology.kubelet_search import kubelet_search_of
from services.scheduler.filter.topology.predict import by_hints, lowest_zones
from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.result import Placed
from shared.domain.pod import Pod
from shared.kubelet.admission import admit
from shared.kubelet.masks import nodes_of
from tests.fixtures.examples import examples
from tests.scheduler.cycle_worlds import World, amounts, container, guaranteed, zone
from tests.scheduler.kubelet_worlds import Scene, scene, world_of


def compare(seen: Scene) -> tuple[dict[str, tuple[int, ...]], dict[str, tuple[int, ...]]]:
    """Return the predicted and the actual zones of the predicted containers; both are empty for a
    refused pod.
    """
    placed = world_of(seen, CycleConfig()).cluster.place(seen.pod)
    if not isinstance(placed, Placed):
        return {}, {}
    every = tuple(zone.id for zone in seen.base.kubelet.machine.zones)
    zones = {
        each.name: every if each.hint.mask is None else nodes_of(each.hint.mask)
        for each in admit(seen.base, seen.pod).containers
    }
    return placed.predicted, {name: zones[name] for name in placed.predicted}


@pytest.mark.parametrize(
    ("policy", "scope"),
    [
        ("single-numa-node", "container"),
        ("single-numa-node", "pod"),
        ("restricted", "container"),
        ("restricted", "pod"),
        ("best-effort", "container"),
    ],
)
def test_a_known_node_is_predicted_exactly(policy: str, scope: str) -> None:
    @settings(max_examples=examples(75), deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.integers(0, 1 << 30))
    def check(seed: int) -> None:
        seen = scene(seed, policy, scope)
        predicted, actual = compare(msgspec.structs.replace(seen, unconfirmed=()))
        assert predicted == actual

    check()


@pytest.mark.parametrize("policy", ["single-numa-node", "restricted", "best-effort"])
@pytest.mark.parametrize("scope", ["container", "pod"])
def test_on_a_plain_node_the_lowest_zone_is_what_hints_and_merge_come_to(
    policy: str, scope: str
) -> None:
    plain = 0
    for seed in range(120):
        seen = scene(seed, policy, scope)
        cluster = world_of(seen, CycleConfig(), checkpoints=bool(seed % 2)).cluster
        for turn in range(3):
            pod = msgspec.structs.replace(seen.pod, uid=f"p{turn}", name=f"p{turn}")
            pod_class, events = cluster.evaluator.pod_class(pod), cluster.nodes()[0]
            plan, _ = cluster.evaluator.plan(pod_class, events)
            lowest, predicted = lowest_zones(events, plan), by_hints(events, plan)
            if lowest is not None and kubelet_search_of(events, plan).states is not None:
                assert predicted == {
                    name: (zone,) for name, zone in zip(plan.names, lowest, strict=True)
                }, (seed, turn)
                plain += 1
            cluster.assume(Placed("n", 0, 0, 0), pod)
    assert plain > 20


def test_a_pending_pod_counts_in_its_predicted_zone() -> None:
    world = World()
    world.node("n", zone(0, amounts(8)), zone(1, amounts(8)))

    def place(pod: Pod) -> dict[str, tuple[int, ...]]:
        placed = world.cluster.place(pod)
        assert isinstance(placed, Placed)
        world.cluster.assume(placed, pod)
        world.bound(pod, "n")
        return placed.predicted

    assert place(guaranteed("a", container("c", amounts(3)))) == {"c": (0,)}
    assert place(guaranteed("b", container("c", amounts(4)))) == {"c": (0,)}
    assert place(guaranteed("c", container("c", amounts(1)))) == {"c": (0,)}


@pytest.mark.parametrize(
    ("prediction", "expected"), [("off", {}), ("observe", {"c": (0,)}), ("trust", {"c": (0,)})]
)
def test_a_prediction_is_made_unless_it_is_off(
    prediction: str, expected: dict[str, tuple[int, ...]]
) -> None:
    made = World(msgspec.convert({"prediction": prediction}, CycleConfig))
    made.node("n", zone(0, amounts(8, 8)), zone(1, amounts(8, 8)))
    placed = made.cluster.place(guaranteed("p", container("c", amounts(4, 4))))
    assert isinstance(placed, Placed)
    assert placed.predicted == expected
