"""Nodes that koordlet reports: its annotations confirm CPUs, and no pod passes that the kubelet
model rejects, whether the Memory Manager is static or not.
"""

from __future__ import annotations

import json
import random
from typing import Any

import msgspec
import pytest

from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.result import Placed
from services.topology_store.intake import read_object
from shared.domain.report import Report
from shared.events.cluster_events import PodRunning
from shared.kube.koordlet import CPU_MANAGER_POLICY, CPU_TOPOLOGY, POD_CPU_ALLOCS, MemoryPolicy
from shared.kubelet.admission import admit, drop_stale, start_containers
from shared.kubelet.cpuset import format_cpus
from shared.kubelet.layout import cpus_in
from shared.kubelet.machine import KubeletState
from tests.kubelet.machines import GIB, container, guaranteed, kubelet
from tests.scheduler.cycle_worlds import World
from tests.scheduler.kubelet_worlds import NODE, report_of

# `regular_machine`: 64 GiB less pages. The kubelet reserves 1 GiB of each zone.
PER_ZONE = 60 * GIB
POLICIES = {
    "single-numa-node": "SingleNUMANode",
    "restricted": "Restricted",
    "best-effort": "BestEffort",
}


def koordlets_report(state: KubeletState, memory: MemoryPolicy = "auto") -> Report:
    """Return koordlet's object for this kubelet as the topology-store reads it."""
    machine, manager = report_of(state), state.kubelet.cpu
    assert machine.cpus is not None
    cpus = [
        {"id": cpu.id, "core": cpu.core, "socket": cpu.socket, "node": cpu.numa}
        for cpu in cpus_in(machine.cpus) or ()
    ]
    allocs = []
    for uid, active in state.pods.items():
        cpus_of_pod = 0
        for assigned in state.cpu.entries.get(uid, {}).values():
            cpus_of_pod |= assigned
        if cpus_of_pod:
            names = {"namespace": active.pod.namespace, "name": active.pod.name, "uid": uid}
            allocs.append({**names, "cpuset": format_cpus(cpus_of_pod), "managedByKubelet": True})
    amounts = {"memory": PER_ZONE, "hugepages-2Mi": 4 * GIB, "cpu": 8}
    resources = [
        {"name": name, "capacity": amount, "allocatable": amount, "available": amount}
        for name, amount in amounts.items()
    ]
    level = "PodLevel" if machine.scope == "pod" else "ContainerLevel"
    policy = POLICIES.get(machine.policy)
    written: dict[str, Any] = {
        CPU_TOPOLOGY: {"detail": cpus},
        CPU_MANAGER_POLICY: {"policy": "static", "reservedCPUs": format_cpus(manager.reserved)},
        POD_CPU_ALLOCS: allocs or None,
    }
    annotations = {key: json.dumps(value) for key, value in written.items()}
    names = {"name": NODE, "uid": "object", "resourceVersion": "1"}
    report = read_object(
        {
            "metadata": {**names, "annotations": annotations},
            "topologyPolicies": [f"{policy}{level}" if policy else "None"],
            "zones": [
                {"name": f"node-{zone.id}", "type": "Node", "resources": resources}
                for zone in machine.zones
            ],
        },
        memory,
    )
    assert isinstance(report, Report), report
    return report


def koordlets_world(state: KubeletState, memory: MemoryPolicy = "auto") -> World:
    """Return a cluster in which the pods of this kubelet run and koordlet has reported since."""
    world, zones = World(CycleConfig()), len(state.memory.nodes)
    offered = dict.fromkeys(("cpu", "pods", "hugepages-2Mi"), 1 << 50)
    world.observe(NODE, allocatable={**offered, "memory": zones * (PER_ZONE - GIB)})
    for active in state.pods.values():
        world.bound(active.pod, NODE)
        world.fold(f"pod/{active.pod.uid}", PodRunning(active.pod.uid, NODE))
    world.report(koordlets_report(state, memory))
    return world


def filled(rng: random.Random, state: KubeletState, pods: int) -> KubeletState:
    for number in range(pods):
        request = container(cpu=rng.choice((0, 1, 2, 3, 4)), memory=rng.choice((1, 10, 20, 50)))
        pod = guaranteed(f"p{number}", request)
        admitted = admit(state, pod)
        state = start_containers(admitted.state, pod) if admitted.admitted else admitted.state
        state = drop_stale(state)
    return state


@pytest.mark.parametrize("manager", ["Static", "None"])
@pytest.mark.parametrize("scope", ["pod", "container"])
@pytest.mark.parametrize("policy", [*POLICIES, "none"])
def test_no_pod_passes_that_the_kubelet_rejects(policy: str, scope: str, manager: str) -> None:
    placed = 0
    for seed in range(40):
        rng = random.Random(seed)
        settings: dict[str, Any] = {"memory_policy": manager}
        if manager == "None":
            settings["reserved_memory"] = {}
        state = filled(rng, kubelet(2, policy, scope, **settings), rng.randint(0, 4))
        world = koordlets_world(state)
        for number in range(3):
            request = container(cpu=rng.choice((1, 2, 4, 6)), memory=rng.choice((1, 10, 30)))
            pod = guaranteed(f"new{number}", request)
            if not isinstance(world.cluster.place(pod), Placed):
                continue
            admitted = admit(state, pod)
            assert admitted.admitted, seed
            placed += 1
            state = start_containers(admitted.state, pod)
            world.bound(pod, NODE)
    assert placed > 15


def test_pod_cpu_allocs_confirm_a_pod_with_its_memory_in_that_zone() -> None:
    state = kubelet(2, scope="pod")
    for name in ("a", "b"):
        pod = guaranteed(name, container(cpu=4, memory=30))
        state = start_containers(admit(state, pod).state, pod)
    world = koordlets_world(state)
    charges = world.ledger.nodes[NODE].charges
    assert all(charge.confirmed for charge in charges.values())
    assert charges["a"].confirmed_zones == {0: {"cpu": 4000}}
    assert charges["a"].zones == {0: {"memory": 30 * GIB}}
    assert charges["b"].zones == {1: {"memory": 30 * GIB}}
    fits = guaranteed("fits", container(cpu=3, memory=20))
    assert isinstance(world.cluster.place(fits), Placed)


def test_a_pod_without_exclusive_cpus_is_confirmed_once_it_runs() -> None:
    world = koordlets_world(kubelet(2))
    memory = guaranteed("m", container(memory=20))
    world.bound(memory, NODE)
    charge = world.ledger.nodes[NODE].charges["m"]
    assert not charge.confirmed
    world.fold("pod/m", PodRunning("m", NODE))
    assert charge.confirmed
    assert charge.zones == {0: {"memory": 20 * GIB}, 1: {"memory": 20 * GIB}}


def test_a_pod_is_charged_in_zones_without_its_memory_because_none_may_be_pinned() -> None:
    state = kubelet(2, memory_policy="None", reserved_memory={})
    report = koordlets_report(state)
    small = msgspec.structs.replace(report.zones[0].resources["memory"], allocatable=GIB)
    resources = {**report.zones[0].resources, "memory": small}
    zones = (msgspec.structs.replace(report.zones[0], resources=resources), report.zones[1])
    world = koordlets_world(state)
    world.report(msgspec.structs.replace(report, zones=zones, boot_time_ms=2))
    pod = guaranteed("a", container(cpu=4, memory=30))
    world.bound(pod, NODE)
    assert set(world.ledger.nodes[NODE].charges["a"].zones) == {0, 1}


def test_without_a_memory_manager_the_kubelet_is_known_exactly() -> None:
    state = kubelet(2, "restricted", memory_policy="None", reserved_memory={})
    pod = guaranteed("a", container(cpu=4, memory=30))
    state = start_containers(admit(state, pod).state, pod)
    wide = guaranteed("wide", container(cpu=9, memory=70))
    assert admit(state, wide).admitted
    assert not isinstance(koordlets_world(state).cluster.place(wide), Placed)
    assert isinstance(koordlets_world(state, "None").cluster.place(wide), Placed)
