"""Pods with a demand in ordinary init containers alone: no listing ever lacks any of it, so that a
report from before they came must not confirm them, and their kept amounts count until a report with
the pods shows them.
"""

from __future__ import annotations

import msgspec
import pytest

from services.scheduler.snapshot.config import CycleConfig
from shared.domain.pod import Container, Pod, Qos
from shared.events.cluster_events import PodEnded, PodRunning
from shared.kubelet.admission import admit, drop_stale, remove
from shared.kubelet.machine import KubeletState
from tests.kubelet.machines import GIB, GPU, kubelet
from tests.scheduler.cycle_worlds import World
from tests.scheduler.kubelet_worlds import NODE, report_of

RULES = (
    ("single-numa-node", "container"),
    ("single-numa-node", "pod"),
    ("restricted", "container"),
    ("restricted", "pod"),
)


def container(name: str, cpu_milli: int, gpus: int = 0, kind: str = "app") -> Container:
    amounts = {"cpu": cpu_milli, "memory": GIB, **({GPU: gpus} if gpus else {})}
    return Container(name, kind, amounts, amounts)  # type: ignore[arg-type]


def pod(name: str, *containers: Container, qos: str = "Guaranteed") -> Pod:
    return Pod(name, "ns", name, qos, containers)  # type: ignore[arg-type]


def world_of(state: KubeletState, *coming: Pod, checkpoints: bool) -> World:
    """A node with one report since these pods were sent, made before they came."""
    world = World(CycleConfig())
    world.observe(
        NODE,
        allocatable={"cpu": 10**6, "memory": 1 << 50, "pods": 99, GPU: 9, "hugepages-2Mi": 1 << 50},
    )
    report = report_of(state, checkpoints)
    world.report(report)
    for arriving in coming:
        world.bound(arriving, NODE)
    world.report(msgspec.structs.replace(report, boot_time_ms=report.boot_time_ms + 1000))
    return world


@pytest.mark.parametrize("checkpoints", [True, False])
@pytest.mark.parametrize(("policy", "scope"), RULES)
def test_a_report_from_before_they_came_proves_no_init_containers_cpus(
    policy: str, scope: str, checkpoints: bool
) -> None:
    state = kubelet(2, policy, scope, cores_per_zone=3, memory_policy="None", reserved_memory={})
    coming = [pod(name, container("i", 3000, kind="init"), container("c", 500)) for name in "ab"]
    newcomer = pod("new", container("c", 4000))
    world = world_of(state, *coming, checkpoints=checkpoints)
    assert not any(charge.confirmed for charge in world.ledger.nodes[NODE].charges.values())
    assert world.cluster.verdict(newcomer, NODE) is not None
    for arriving in coming:
        state = admit(state, arriving).state
    assert not admit(drop_stale(state), newcomer).admitted


@pytest.mark.parametrize("checkpoints", [True, False])
@pytest.mark.parametrize(
    ("policy", "scope"), [*RULES, ("best-effort", "container"), ("none", "container")]
)
def test_a_report_from_before_it_came_proves_no_init_containers_devices(
    policy: str, scope: str, checkpoints: bool
) -> None:
    state = kubelet(1, policy, scope, gpus={"g0": 1, "g1": 1})
    coming = pod("a", container("i", 500, 2, "init"), container("c", 500), qos="Burstable")
    newcomer = pod("new", container("c", 1000, 1))
    world = world_of(state, coming, checkpoints=checkpoints)
    assert world.cluster.verdict(newcomer, NODE) is not None
    state = drop_stale(admit(state, coming).state)
    assert not admit(state, newcomer).admitted
    world.fold(f"pod/{coming.uid}", PodRunning(coming.uid, NODE))
    assert world.ledger.nodes[NODE].charges["a"].confirmed, "its kubelet runs it"
    assert world.cluster.verdict(newcomer, NODE) is not None, "and no report tells what it keeps"


def test_a_checkpoint_with_the_pod_confirms_it_and_shows_what_it_keeps() -> None:
    state = kubelet(
        2,
        "single-numa-node",
        "container",
        cores_per_zone=3,
        memory_policy="None",
        reserved_memory={},
    )
    coming = pod("a", container("i", 3000, kind="init"), container("c", 500))
    world = world_of(state, coming, checkpoints=True)
    state = drop_stale(admit(state, coming).state)
    world.report(msgspec.structs.replace(report_of(state, True), boot_time_ms=5000))
    assert world.ledger.nodes[NODE].charges["a"].confirmed
    for cpus in (1, 2, 3, 4, 5, 6):
        newcomer = pod(f"new{cpus}", container("c", cpus * 1000))
        assert (world.cluster.verdict(newcomer, NODE) is None) == admit(state, newcomer).admitted


@pytest.mark.parametrize("memory_only", [False, True])
def test_a_pod_with_the_name_of_an_ended_pod_is_distinguished_by_the_checkpoints_uid(
    memory_only: bool,
) -> None:
    """podresources lists the name as it listed the one before: seen with a real kubelet
    (1.36.2).
    """
    state = kubelet(3, "best-effort", "container", gpus={"g0": 1, "g1": 2, "g2": 4})
    app = container("c", 500) if memory_only else Container("c", "app", {}, {})
    qos: Qos = "Guaranteed" if memory_only else "Burstable"
    first, second = (
        Pod(uid, "ns", "again", qos, (container("i", 500, 1, "init"), app))
        for uid in ("first", "second")
    )
    world = world_of(state, first, checkpoints=True)
    state = drop_stale(admit(state, first).state)
    world.report(msgspec.structs.replace(report_of(state, True), boot_time_ms=5000))
    world.fold(f"pod/{first.uid}", PodRunning(first.uid, NODE))
    world.fold(f"pod/{first.uid}", PodEnded(first.uid, node=NODE, cause="deleted"))
    world.bound(second, NODE)
    world.report(msgspec.structs.replace(report_of(state, True), boot_time_ms=6000))
    assert not world.ledger.nodes[NODE].charges[second.uid].confirmed, "that was the one before"
    state = drop_stale(admit(remove(state, first.uid), second).state)
    world.report(msgspec.structs.replace(report_of(state, True), boot_time_ms=7000))
    assert world.ledger.nodes[NODE].charges[second.uid].confirmed
    for gpus in (1, 2, 3):
        newcomer = pod(
            f"new{gpus}", container("i", 500, gpus, "init"), container("c", 500), qos="Burstable"
        )
        assert (world.cluster.verdict(newcomer, NODE) is None) == admit(state, newcomer).admitted
