"""Zones of different sizes: one has more memory, the other more hugepages, and the Memory Manager
gives one hint for both (kubelet 1.36). How many zones the kubelet prefers depends on the empty
zones, and on both resources together.
"""

from __future__ import annotations

import random
from collections import Counter

import msgspec
import pytest

from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.result import Placed
from services.scheduler.snapshot.zone_sizes import capacities, fits_one_zone
from shared.domain.pod import Container, Pod
from shared.domain.report import Placement, Zone, ZonedAmount, ZoneResource
from shared.events.cluster_events import PodRunning
from shared.kubelet.admission import admit, build, drop_stale
from shared.kubelet.config import KubeletConfig, MachineConfig
from shared.kubelet.machine import KubeletState
from tests.kubelet.machines import GIB, regular_machine
from tests.scheduler.cycle_worlds import GPU, World, amounts, container, guaranteed, report, zone
from tests.scheduler.kubelet_worlds import NODE, Scene, report_of, truth, world_of
from tests.scheduler.test_cycle_soundness import RULES

PAGES = "hugepages-2Mi"
STRATEGIES = ["LeastAllocated", "BestFit", "LeastNUMANodes", "MostAllocated"]


def asking(name: str, cpu: int, memory: int, pages: int = 0) -> Pod:
    """Millicores, GiB, GiB."""
    asked = {"cpu": cpu, "memory": memory * GIB, PAGES: pages * GIB}
    asked = {resource: amount for resource, amount in asked.items() if amount}
    return Pod(name, "ns", name, "Guaranteed", (Container("c", "app", asked, asked),))


def uneven(policy: str, scope: str, *zones: tuple[int, int]) -> KubeletState:
    """Zones with so many GiB of memory, and so many of them in hugepages."""
    machine = regular_machine(len(zones), 4)
    zone_memory = [
        msgspec.structs.replace(each, memory_bytes=memory * GIB, hugepages={2 << 20: pages << 9})
        for each, (memory, pages) in zip(machine.zones, zones, strict=True)
    ]
    config = KubeletConfig(
        topology_policy=policy,
        topology_scope=scope,
        cpu_policy="static",
        reserved_cpus="0-1",
        memory_policy="Static",
        reserved_memory={at: {"memory": GIB} for at in range(len(zones))},
    )
    built = build(MachineConfig(tuple(zone_memory), machine.cpus), config, {})
    assert isinstance(built, KubeletState), built
    return built


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("scope", ["container", "pod"])
def test_restricted_takes_two_zones_if_none_has_both_kinds_of_memory(
    scope: str, strategy: str
) -> None:
    """20 GiB of memory are in zone 0, 2 GiB of hugepages in zone 1: two zones are as few as it
    takes.
    """
    seen = Scene(uneven("restricted", scope, (64, 0), (24, 16)), (), asking("new", 500, 20, 2))
    assert truth(seen) == "admitted"
    world = world_of(seen, CycleConfig(strategy=strategy))
    assert world.cluster.verdict(seen.pod, NODE) is None
    assert isinstance(world.cluster.place(seen.pod), Placed)


def test_a_pod_that_takes_two_zones_for_that_joins_them() -> None:
    """While it is pending, it makes a group of both zones, and neither zone offers memory alone any
    more.
    """
    base = uneven("restricted", "container", (64, 0), (24, 16))
    seen = Scene(base, (asking("wide", 500, 20, 2),), asking("new", 500, 4))
    world = world_of(seen, CycleConfig())
    node_info = world.cluster.node(NODE)
    assert node_info is not None
    assert node_info.grouped_zones == {0, 1}
    assert truth(seen) != "admitted"
    assert world.cluster.verdict(seen.pod, NODE) is not None


def test_if_one_zone_has_the_most_of_all_resources_are_compared_one_by_one() -> None:
    zones = [
        zone(0, amounts(cpu=8, memory=16, **{PAGES: 4})),
        zone(1, amounts(cpu=8, memory=8, **{PAGES: 2})),
    ]
    assert fits_one_zone([amounts(cpu=8, memory=16, **{PAGES: 4})], capacities(report("n", zones)))
    crossed = [
        zone(0, amounts(cpu=8, memory=16, **{PAGES: 2})),
        zone(1, amounts(cpu=8, memory=8, **{PAGES: 4})),
    ]
    assert fits_one_zone(
        [amounts(cpu=8, memory=16, **{PAGES: 2}), amounts(memory=8, **{PAGES: 4})],
        capacities(report("n", crossed)),
    )
    assert not fits_one_zone([amounts(memory=9, **{PAGES: 3})], capacities(report("n", crossed)))


def test_under_none_a_zone_without_its_kind_of_memory_takes_no_pod() -> None:
    """Zone 1 has enough memory and no hugepages. The new pod takes the lowest zone, the only one
    for the pending pod.
    """
    base = uneven("none", "container", (14, 4), (48, 0))
    seen = Scene(base, (asking("coming", 500, 8, 3),), asking("new", 500, 8))
    assert truth(seen) == "endangers"
    assert world_of(seen, CycleConfig()).cluster.verdict(seen.pod, NODE) is not None


@pytest.mark.parametrize(("policy", "scope"), RULES)
def test_the_verdict_is_the_kubelets(policy: str, scope: str) -> None:
    passed = wide = 0
    for seed in range(150):
        seen = drawn(seed, policy, scope)
        world, expected = world_of(seen, CycleConfig()), truth(seen)
        refusal = world.cluster.verdict(seen.pod, NODE)
        assert isinstance(world.cluster.place(seen.pod), Placed) is (refusal is None), seed
        assert (refusal is None) is (expected == "admitted"), (seed, expected, refusal)
        passed += refusal is None
        wide += not fits_one_zone(
            [seen.pod.containers[0].requests], capacities(report_of(seen.base))
        )
    assert passed > 40
    assert wide > 10


def test_what_fitted_one_zone_by_its_capacity_lies_in_one_under_restricted() -> None:
    """An init container may have kept both devices of a zone, one of which is unhealthy now, but
    never one of each zone.
    """
    world, old = (
        World(),
        guaranteed(
            "old", container("i", amounts(1, 1, gpu=2), "init"), container("c", amounts(1, 1))
        ),
    )
    world.observe("n")
    world.bound(old, "n")
    holdings = (ZonedAmount("cpu", (0,), 1000), ZonedAmount("memory", (0,), GIB))
    zones = [
        Zone(
            at,
            {
                **zone(at, amounts(cpu, memory), amounts(8, 16)).resources,
                GPU: ZoneResource(2, 1, 1),
            },
        )
        for at, cpu, memory in ((0, 7, 15), (1, 8, 16))
    ]
    world.report(
        report("n", zones, "restricted", placements=(Placement("ns", "old", "c", holdings),))
    )
    world.fold("pod/old", PodRunning("old", "n"))
    assert world.ledger.nodes["n"].charges["old"].zones == {0: {GPU: 2}, 1: {GPU: 2}}
    assert (
        world.cluster.verdict(guaranteed("new", container("c", amounts(1, 1, gpu=1))), "n") is None
    )


def drawn(seed: int, policy: str, scope: str) -> Scene:
    """A request at once is no more than the whole node has, because kube-scheduler sees to that."""
    rng = random.Random(f"{seed} uneven")
    state = uneven(
        policy,
        scope,
        (rng.choice((24, 64)), rng.choice((1, 4))),
        (rng.choice((24, 48)), rng.choice((0, 8, 16))),
    )
    remaining = Counter[str]()
    for zone_report in report_of(state).zones:
        remaining.update({name: held.allocatable for name, held in zone_report.resources.items()})
    pods = []
    for name in ("settled0", "settled1", "coming0", "coming1", "new"):
        pod = some(rng, name)
        asked = pod.containers[0].requests
        if name == "new" and any(remaining[each] < amount for each, amount in asked.items()):
            pod = asking(name, 500, 1)
        if name == "new" or (
            rng.random() < 0.6 and all(remaining[each] >= amount for each, amount in asked.items())
        ):
            remaining.subtract(asked)
            pods.append(pod)
    for pod in pods:
        state = admit(state, pod).state if pod.name.startswith("settled") else state
    return Scene(
        drop_stale(state), tuple(pod for pod in pods if pod.name.startswith("coming")), pods[-1]
    )


def some(rng: random.Random, name: str) -> Pod:
    return asking(
        name,
        rng.choice((500, 1000, 2000, 9000)),
        rng.choice((1, 8, 18, 26)),
        rng.choice((0, 0, 1, 3)),
    )
