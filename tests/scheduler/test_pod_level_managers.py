"""Pods with resources of their own on kubelets with PodLevelResourceManagers on (KEP-5526)."""

from __future__ import annotations

import random

import msgspec
import pytest

from services.exporter import core as exporter
from services.exporter.kubelet_config import document, merged, parse
from services.exporter.kubelet_sources import parse_flags
from services.scheduler.preempt.search import admitted_whatever_it_picks
from services.scheduler.snapshot.config import CycleConfig
from services.simulator import reading
from shared.domain.pod import Container, ContainerKind, Pod
from shared.domain.pod_level import DEVICES, NOTHING_LEFT, SHARED_MEMORY
from shared.domain.refusal import Reason, Refusal
from shared.domain.report import POD_LEVEL, POD_LEVEL_GATE, Freshness
from shared.events.cluster_events import PodEnded
from shared.kubelet.admission import admit, drop_stale, remove
from shared.kubelet.checkpoint import read_cpu, read_memory
from shared.kubelet.machine import KubeletState
from shared.kubelet.memory_state import Block
from shared.kubelet.walk import EMPTY_POOL, TOPOLOGY_AFFINITY
from tests.kubelet.machines import GIB, GPU, container, guaranteed, kubelet
from tests.scheduler.cycle_worlds import World
from tests.scheduler.kubelet_worlds import NODE, free_of

POLICIES = ("none", "best-effort", "restricted", "single-numa-node")


def node(policy: str = "restricted", scope: str = "pod") -> KubeletState:
    gpus = {"g0": 1, "g1": 2}
    return kubelet(2, policy, scope, gpus=gpus, pod_level_managers=True)


def pod(uid: str, cpus: int, memory: int, *containers: Container) -> Pod:
    level = {"cpu": cpus * 1000, "memory": memory * GIB}
    return msgspec.structs.replace(guaranteed(uid, *containers), pod_level=level)


def shared(name: str, kind: ContainerKind = "app") -> Container:
    return Container(name, kind, {}, {})


def world_of(state: KubeletState, pods: list[Pod], stored: bool = True) -> World:
    """The cluster's view of this kubelet and of its pods, as the API server has them."""
    world = World(CycleConfig())
    offered = {"cpu": 1 << 40, "memory": 1 << 50, GPU: 2, "pods": 110}
    world.observe(NODE, allocatable=offered, kubelet_version="v1.36.3")
    for started in pods:
        world.bound(started, NODE)
    scan = reading.scan(state, pods, Freshness("boot", 1), stored)
    world.report(exporter.report(NODE, "test", scan, exporter.Rules()))
    return world


def verdict(state: KubeletState, wanted: Pod, pods: list[Pod] | None = None) -> Refusal | None:
    result = world_of(state, pods or []).cluster.verdict(wanted, NODE)
    assert result is None or isinstance(result, Refusal)
    return result


def random_level_pod(rng: random.Random, uid: str) -> Pod:
    kinds: list[ContainerKind] = [rng.choice(("init", "sidecar"))] if rng.random() < 0.3 else []
    kinds += ["app"] * rng.randint(1, 2)
    containers = []
    for number, kind in enumerate(kinds):
        made = container(f"c{number}", rng.randint(1, 3), rng.choice((1, 20)))
        made = msgspec.structs.replace(made, kind=kind)
        if rng.random() < 0.1:
            made.requests[GPU] = made.limits[GPU] = 1
        containers.append(shared(made.name, kind) if rng.random() < 0.4 else made)
    cpus = sum(part.requests.get("cpu", 0) for part in containers) // 1000
    memory = sum(part.requests.get("memory", 0) for part in containers) // GIB
    level = pod(uid, cpus + rng.choice((0, 1, 4)), memory + rng.choice((0, 1, 30)), *containers)
    if rng.random() < 0.8 or not all(part.requests for part in containers):
        return level
    return msgspec.structs.replace(level, pod_level=None)


@pytest.mark.parametrize("scope", ["container", "pod"])
@pytest.mark.parametrize("policy", POLICIES)
def test_the_filter_answers_as_the_kubelet(policy: str, scope: str) -> None:
    """Only devices under scope pod, and shared containers next to a Static Memory Manager, wait
    although a kubelet may admit the pod."""
    passed = 0
    for seed in range(60):
        rng = random.Random(seed)
        state, pods = node(policy, scope), []
        for number in range(rng.randint(0, 3)):
            came = random_level_pod(rng, f"p{number}")
            answer = admit(state, came)
            state = drop_stale(answer.state)
            pods += [came] if answer.admitted else []
        wanted = random_level_pod(rng, "wanted")
        admitted, refusal = admitted_whatever_it_picks(state, wanted), verdict(state, wanted, pods)
        assert admitted or refusal is not None, seed
        if admitted and refusal is not None:
            assert refusal.phrase.endswith((DEVICES, SHARED_MEMORY)), (seed, refusal)
        passed += refusal is None
    assert passed > 8


@pytest.mark.parametrize("scope", ["container", "pod"])
def test_a_pod_that_no_report_shows_is_charged(scope: str) -> None:
    for seed in range(60):
        rng = random.Random(seed)
        node_before, late = node("restricted", scope), random_level_pod(rng, "late")
        answer = admit(node_before, late)
        if not answer.admitted:
            continue
        wanted, world = random_level_pod(rng, "wanted"), world_of(node_before, [])
        world.bound(late, NODE)
        if world.cluster.verdict(wanted, NODE) is None:
            assert admitted_whatever_it_picks(drop_stale(answer.state), wanted), seed


@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize("scope", ["container", "pod"])
def test_nothing_counts_as_free_that_the_kubelet_gave_away(scope: str, stored: bool) -> None:
    for seed in range(40):
        rng = random.Random(seed)
        state, pods = node("single-numa-node", scope), []
        for number in range(3):
            came = random_level_pod(rng, f"p{number}")
            answer = admit(state, came)
            state = drop_stale(answer.state)
            pods += [came] if answer.admitted else []
        ledger = world_of(state, pods, stored).ledger.nodes[NODE]
        if stored and not any(part.kind == "init" for each in pods for part in each.containers):
            assert all(charge.confirmed for charge in ledger.charges.values())
        free = free_of(state)
        for zone, amounts in ledger.free_min.items():
            assert all(amount <= free[zone][name] for name, amount in amounts.items()), seed


def test_a_pool_is_one_placement_and_its_end_frees_it() -> None:
    came = pod("p", 4, 20, container("own", 2, 5), shared("a"), shared("b"))
    answer = admit(node(), came)
    assert answer.admitted
    world = world_of(answer.state, [came])
    ledger = world.ledger.nodes[NODE]
    ((listed,),) = (ledger.listed or {}).values()
    assert (listed.container, {item.resource: item.amount for item in listed.held}) == (
        POD_LEVEL,
        {"cpu": 4000, "memory": 20 * GIB},
    )
    assert ledger.charges["p"].confirmed
    world.fold("pod/p", PodEnded("p", "succeeded"))
    state_after = drop_stale(remove(answer.state, "p"))
    free = free_of(state_after)
    assert {zone: amounts["cpu"] for zone, amounts in ledger.free_min.items()} == {
        zone: amounts["cpu"] for zone, amounts in free.items()
    }


def test_containers_that_share_need_something_to_share() -> None:
    wanted = pod("p", 4, 20, container("own", 4, 5), shared("a"))
    answers = {policy: admit(node(policy), wanted).reason for policy in POLICIES[1:]}
    assert answers == {
        "best-effort": EMPTY_POOL,
        "restricted": TOPOLOGY_AFFINITY,
        "single-numa-node": TOPOLOGY_AFFINITY,
    }
    refusal = verdict(node(), wanted)
    assert refusal is not None
    assert refusal.reason == Reason.FEATURE
    assert refusal.phrase.endswith(NOTHING_LEFT % "cpu")
    assert verdict(node(), pod("p", 5, 20, container("own", 4, 5), shared("a"))) is None


def test_without_the_gate_the_pod_gets_nothing_of_its_own() -> None:
    state = kubelet(2, "single-numa-node", "pod")
    full = pod("p", 100, 20, container("own", 4, 5), shared("a"))
    assert verdict(state, full) is None
    assert verdict(node("single-numa-node"), full) is not None


@pytest.mark.parametrize(
    ("config", "flags", "is_on"),
    [
        (b"{featureGates: {PodLevelResourceManagers: true}}", [], True),
        (b"{featureGates: {PodLevelResourceManagers: false}}", [], False),
        (b"{}", ["--feature-gates=A=true", "--feature-gates", f"{POD_LEVEL_GATE}=true"], True),
        (b"{featureGates: {PodLevelResourceManagers: true}}", ["--feature-gates=A=true"], True),
        (
            b"{featureGates: {PodLevelResourceManagers: true}}",
            [f"--feature-gates={POD_LEVEL_GATE}=false"],
            False,
        ),
    ],
)
def test_the_exporter_reads_the_gate(config: bytes, flags: list[str], is_on: bool) -> None:
    settings = merged([("file", document(config, "file"))], [("flags", parse_flags(flags))])
    assert (settings.options.get(POD_LEVEL_GATE) == "true") is is_on
    if not flags:
        assert parse(config, "file").options == settings.options


def test_pools_are_read_from_the_checkpoints() -> None:
    """`podEntries` as kubelet 1.36 writes them (state.go of both managers)."""
    cpu = read_cpu(
        b'{"policyName":"static","defaultCpuSet":"0-3","entries":{"u":{"own":"4-5","a":"6-7"}},'
        b'"podEntries":{"u":{"cpuSet":"4-7"}},"checksum":0}'
    )
    assert getattr(cpu, "entries", None) == {"u": {"own": 0x30, "a": 0xC0, POD_LEVEL: 0xF0}}
    memory = read_memory(
        b'{"policyName":"Static","machineState":{},"entries":{},"podEntries":{"u":{"memoryBlocks":'
        b'[{"numaAffinity":[1],"type":"memory","size":9}]}},"checksum":0}'
    )
    assert getattr(memory, "entries", None) == {"u": {POD_LEVEL: (Block(2, 9, "memory"),)}}
