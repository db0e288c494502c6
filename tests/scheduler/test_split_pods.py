"""Under single-numa-node and scope pod, pods of several containers with memory requests alone: if
no zone has their sum, the kubelet has no preference, and each container takes a zone of its own.
The judge is the kubelet model.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.result import Placed
from shared.domain.demand import zonal_demand
from shared.domain.pod import Container, Pod
from shared.domain.refusal import Reason
from shared.events.cluster_events import PodEnded
from shared.kubelet.admission import admit, drop_stale, remove, start_containers
from shared.kubelet.machine import KubeletState
from shared.ledger.charge import charge_zones, possible_zones
from tests.kubelet.machines import GIB, kubelet
from tests.scheduler.cycle_worlds import World
from tests.scheduler.kubelet_worlds import (
    NODE,
    Made,
    Scene,
    free_of,
    measured,
    report_of,
    truth,
    world_of,
)

SIZES = (2, 8, 20, 30, 40, 58)


def pod(name: str, *memory: int, cpu: int = 500, **fields: Any) -> Pod:
    """Return a pod with a container for each of these GiB. It has no whole CPUs, so only the Memory
    Manager places it.
    """
    asked = [{"cpu": cpu, "memory": each * GIB} for each in memory]
    containers = tuple([Container(f"c{at}", "app", each, each) for at, each in enumerate(asked)])
    return Pod(name, "ns", name, "Guaranteed", containers, **fields)


def beside(*settled: Pod, zones: int = 2) -> KubeletState:
    """A kubelet with zones of 59 GiB and these running pods."""
    state = kubelet(zones, "single-numa-node", "pod")
    for running_pod in settled:
        verdict = admit(state, running_pod)
        state = (
            start_containers(verdict.state, running_pod)
            if verdict.admitted
            else drop_stale(verdict.state)
        )
    return drop_stale(state)


@pytest.mark.parametrize(
    ("settled", "asked", "expected"),
    [
        ((10, 10), (35, 40), "admitted"),
        ((), (35, 40), "refused"),  # both zones would be a hint, which is not one zone
        ((20, 20), (35, 40), "refused"),
        ((10, 10), (20, 20), "admitted"),  # together in one
    ],
)
def test_its_containers_take_zones_each_for_itself(
    settled: tuple[int, ...], asked: tuple[int, ...], expected: str
) -> None:
    seen = Scene(
        beside(*(pod(f"s{at}", each, cpu=6000) for at, each in enumerate(settled))),
        (),
        pod("new", *asked),
    )
    cluster = world_of(seen, CycleConfig()).cluster
    assert truth(seen) == expected
    assert (cluster.verdict(seen.pod, NODE) is None) is (expected == "admitted")
    assert isinstance(cluster.place(seen.pod), Placed) is (expected == "admitted")


def test_the_container_that_finds_no_zone_is_named() -> None:
    seen = Scene(beside(pod("s0", 20, cpu=6000), pod("s1", 20, cpu=6000)), (), pod("new", 35, 40))
    refusal = world_of(seen, CycleConfig()).cluster.verdict(seen.pod, NODE)
    assert refusal is not None
    assert (refusal.reason, refusal.container, refusal.remedy) == (
        Reason.NO_SINGLE_ZONE,
        "c1",
        "request at most 39Gi memory in container c1; otherwise "
        "necessary: 1Gi more free memory in zone 0",
    )


def test_what_a_label_aligns_stays_in_one_zone() -> None:
    """The kubelet itself has policy none, and would split the pod only by chance."""
    world, state = World(), kubelet(2, "none")
    label = {"node.koordinator.sh/numa-topology-policy": "SingleNUMANodePodLevel"}
    world.observe(NODE, label, {"cpu": 99_000, "memory": 1 << 50, "pods": 9})
    world.report(report_of(state))
    assert world.cluster.verdict(pod("new", 35, 40), NODE) is not None


def test_it_is_charged_wherever_the_kubelet_may_put_it() -> None:
    """When it is sent zone 0 alone holds 50 GiB; another pod takes 30 of them before it comes."""
    world_before, new = beside(pod("s0", 4, cpu=6000), pod("s1", 14, cpu=6000)), pod("new", 25, 25)
    came = admit(drop_stale(admit(world_before, pod("other", 30)).state), new)
    assert [each.memory[0].mask for each in came.containers] == [0b01, 0b10]
    report, free = report_of(world_before), free_of(world_before)
    demand = zonal_demand(new, report.tracked)
    charged = charge_zones(demand, possible_zones(demand, report, free), tuple(free), report)
    assert [held["memory"] // GIB for held in charged.values()] == [50, 50]


def test_it_may_have_been_split_next_to_a_pod_that_ended_since() -> None:
    """It came while 35 GiB of zones 0 and 2 were held: its containers have 20 in each, and none
    holds 58 any more.
    """
    running = pod("e0", 35, cpu=6000), pod("s", 49, cpu=8000), pod("e1", 35, cpu=8000)
    world_before, came, new = (
        beside(*running, zones=3),
        pod("came", 20, 20),
        pod("new", 58, cpu=1000),
    )
    world = world_of(Scene(world_before, (came,), new), CycleConfig())
    state = admit(world_before, came).state
    for uid in ("e0", "e1"):
        world.fold(f"pod/{uid}", PodEnded(uid, "deleted", NODE))
        state = remove(state, uid)
    assert not admit(state, new).admitted
    assert world.cluster.verdict(new, NODE) is not None


def test_a_crowd_of_them_is_counted_as_any_other() -> None:
    """There are more pods than a search could try, but each certainly has a zone that holds all of
    it.
    """
    crowd = tuple([pod(f"u{at}", 1, at + 1) for at in range(9)])
    cluster = world_of(Scene(beside(), crowd, pod("new", 2, 2)), CycleConfig()).cluster
    assert cluster.verdict(pod("new", 2, 2), NODE) is None
    assert cluster.verdict(pod("aligned", 2, 2, cpu=1000), NODE) is None


def drawn(rng: random.Random, name: str) -> Pod:
    """Return a random pod, mostly one that may be split; some have whole CPUs."""
    return pod(
        name, *rng.choices(SIZES, k=rng.choice((1, 2, 2, 3))), cpu=rng.choice((250, 500, 500, 2000))
    )


def scene(seed: int) -> Scene:
    """Return a scene in which the kubelet has admitted pending pods if it had room; some of them
    are reported as running.
    """
    rng = random.Random(f"{seed} split")
    base = beside(
        *(drawn(rng, f"s{at}") for at in range(rng.randint(0, 3))), zones=rng.choice((2, 2, 3))
    )
    state, came, runs = base, [], set()
    for number in range(rng.randint(0, 3)):
        verdict = admit(state, drawn_pod := drawn(rng, f"u{number}"))
        if verdict.admitted:
            state = verdict.state
            came.append(drawn_pod)
            if rng.random() < 0.5:
                runs.add(drawn_pod.uid)
    return Scene(base, tuple(came), drawn(rng, "new"), frozenset(runs))


def made(seed: int) -> Made:
    seen = scene(seed)
    return Made(seen, world_of(seen, CycleConfig()))


def test_the_verdict_is_the_kubelets_next_to_others_of_the_kind() -> None:
    outcome = measured(range(400), "single-numa-node", "pod", 3, made=made)
    assert outcome.unsound == []
    assert len(outcome.refused_needlessly) <= 2
    assert outcome.passed > 100
