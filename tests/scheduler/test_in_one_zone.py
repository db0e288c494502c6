"""A pod that asks for one zone passes where the kubelet surely puts it into one, and nowhere else.

The kubelet model is the judge: pending pods come in any order or not at all.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from services.scheduler.preempt.search import admissions
from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.result import Placed, Unplaceable
from services.scheduler.snapshot.topology_policy import (
    POD_ANNOTATION,
    POLICY_LABEL,
    VOLCANO_ANNOTATION,
)
from shared.domain.pod import Pod
from shared.kubelet.machine import KubeletState
from tests.kubelet.machines import GPU, kubelet
from tests.scheduler.cycle_worlds import World, amounts, container, guaranteed, zone
from tests.scheduler.kubelet_worlds import (
    NODE,
    Scene,
    _explored,
    report_at,
    report_of,
    scene,
    world_of,
)

SINGLE = '{"numaTopologyPolicy": "SingleNUMANode"}'
POLICIES = ("none", "best-effort", "restricted")


def wishing(pod: Pod, key: str = POD_ANNOTATION, value: str = SINGLE) -> Pod:
    return msgspec.structs.replace(pod, annotations={key: value})


def zones_by_container(state: KubeletState, pod: Pod) -> list[set[int]]:
    placements = report_at(state, False).placements or ()
    return [
        {zone for item in placement.held for zone in item.zones}
        for placement in placements
        if placement.pod == pod.name and placement.held
    ]


def outcomes(seen: Scene, pod: Pod) -> Iterator[list[set[int]] | None]:
    """The zones of each container in every order and choice, None for a rejection."""
    explored = _explored(
        [(seen.base, frozenset(other.uid for other in seen.unconfirmed))],
        {other.uid: other for other in seen.unconfirmed},
        seen.running,
    )
    assert explored is not None
    for state, _ in explored.moments:
        for result in admissions(state, pod):
            yield zones_by_container(result.state, pod) if result.admitted else None


def is_kept(zones: list[set[int]] | None, whole: bool) -> bool:
    if zones is None:
        return False
    groups = [set[int]().union(*zones)] if whole else zones
    return all(len(group) <= 1 for group in groups)


def without_gpus(pod: Pod) -> Pod:
    """Under policy none any device may be picked, and the judge takes the lowest."""
    containers = [
        msgspec.structs.replace(
            part,
            requests={name: amount for name, amount in part.requests.items() if name != GPU},
            limits={name: amount for name, amount in part.limits.items() if name != GPU},
        )
        for part in pod.containers
    ]
    return msgspec.structs.replace(pod, containers=tuple(containers))


def has_init(pod: Pod) -> bool:
    return any(part.kind == "init" for part in pod.containers)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("unconfirmed", [0, 2])
@pytest.mark.parametrize("key", [POD_ANNOTATION, VOLCANO_ANNOTATION])
def test_it_passes_only_where_every_order_puts_it_into_one_zone(
    policy: str, unconfirmed: int, key: str
) -> None:
    placed = needless = 0
    for seed in range(7000, 7060):
        seen = scene(seed, policy, "container", zones=2, unconfirmed=unconfirmed)
        if policy == "none":
            seen = msgspec.structs.replace(seen, pod=without_gpus(seen.pod))
        value = SINGLE if key == POD_ANNOTATION else "single-numa-node"
        pod = wishing(seen.pod, key, value)
        world = world_of(seen, CycleConfig(), True)
        result = world.cluster.place(pod)
        ways = list(outcomes(seen, seen.pod))
        kept = all(is_kept(zones, key == POD_ANNOTATION) for zones in ways)
        if isinstance(result, Placed):
            assert kept, (seed, ways)
            placed += 1
        else:
            needless += kept and all(ways) and not has_init(pod)
    assert placed > 3
    assert needless <= 1, needless


@pytest.mark.parametrize("policy", POLICIES)
def test_later_pods_do_not_take_the_zone_of_a_pod_that_is_on_its_way(policy: str) -> None:
    """Both pods are placed on one state. Whichever the kubelet admits first, the first pod is in
    one zone.
    """
    both = 0
    for seed in range(8000, 8060):
        seen = scene(seed, policy, "container", zones=2, unconfirmed=0)
        first, second = wishing(seen.pod), msgspec.structs.replace(seen.pod, uid="x", name="x")
        world = world_of(seen, CycleConfig(), True)
        result = world.cluster.place(first)
        if not isinstance(result, Placed):
            continue
        world.cluster.assume(result, first)
        if not isinstance(world.cluster.place(second), Placed):
            continue
        both += 1
        later = msgspec.structs.replace(seen, unconfirmed=(second,))
        assert all(is_kept(zones, True) for zones in outcomes(later, first)), seed
    assert both > 1


def test_what_the_kubelet_pins_nothing_of_is_in_no_zone() -> None:
    world = World()
    world.node("n", zone(0, amounts(4, 8)), zone(1, amounts(4, 8)))
    share = msgspec.structs.replace(guaranteed("p", container("c", {"cpu": 500})), qos="Burstable")
    refusal = world.cluster.place(wishing(share))
    assert isinstance(refusal, Unplaceable)
    assert "pins nothing of the pod to a NUMA zone" in refusal.message
    assert isinstance(world.cluster.place(share), Placed)
    world.node("n", zone(0, amounts(4, 8)))
    assert isinstance(world.cluster.place(wishing(share)), Placed)


def test_koordinator_means_the_whole_pod_and_volcano_each_container() -> None:
    world = World()
    world.node("n", zone(0, amounts(4, 8)), zone(1, amounts(4, 8)))
    pod = guaranteed("p", container("a", amounts(3, 1)), container("b", amounts(3, 1)))
    assert isinstance(world.cluster.place(wishing(pod)), Unplaceable)
    assert isinstance(
        world.cluster.place(wishing(pod, VOLCANO_ANNOTATION, "single-numa-node")), Placed
    )
    small = guaranteed("p", container("a", amounts(2, 1)), container("b", amounts(2, 1)))
    assert isinstance(world.cluster.place(wishing(small)), Placed)


@pytest.mark.parametrize("label", ["SingleNUMANode", "Restricted"])
def test_a_node_label_asks_for_it_of_pods_that_pin_something(label: str) -> None:
    """The kubelet has policy none, and the report the ids of its CPUs."""
    state = kubelet(2, "none", cores_per_zone=4)
    world = World()
    world.observe(NODE, labels={POLICY_LABEL: label})
    world.report(report_of(state, True))
    pods = [guaranteed(f"p{number}", container("c", amounts(3, 1))) for number in range(6)]
    passed = []
    for pod in pods:
        result = world.cluster.place(pod)
        if isinstance(result, Placed):
            assert result.one_zone
            passed.append(pod)
            (end,) = admissions(state, pod)
            assert is_kept(zones_by_container(end.state, pod), True)
            state = end.state
            world.running(pod, NODE)
            world.report(report_at(state, True, time_ms=2 + len(passed)))
        else:
            assert "(Koordinator) wants it, and the kubelet has none" in result.message
    assert 0 < len(passed) < 6
    share = msgspec.structs.replace(random_pod_of_shares(), uid="share", name="share")
    assert isinstance(world.cluster.place(share), Placed)


def random_pod_of_shares() -> Pod:
    pod = guaranteed("share", container("c", {"cpu": 500}))
    return msgspec.structs.replace(pod, qos="Burstable")


@pytest.mark.parametrize(
    ("annotations", "problem"),
    [
        ({VOLCANO_ANNOTATION: "sometimes"}, "unknown policy 'sometimes'"),
        (
            {VOLCANO_ANNOTATION: "restricted", POD_ANNOTATION: SINGLE},
            "ask for different policies",
        ),
    ],
)
def test_policies_that_contradict_are_a_problem_of_the_pod(
    annotations: dict[str, str], problem: str
) -> None:
    world = World()
    world.node("n", zone(0, amounts(4, 8)))
    pod = guaranteed("p", container("c", amounts(1, 1)))
    result = world.cluster.place(msgspec.structs.replace(pod, annotations=annotations))
    assert isinstance(result, Unplaceable)
    assert problem in result.message
