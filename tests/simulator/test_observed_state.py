"""A production report and the pods' manifests alone give the kubelet's exact state: what it holds,
and its next decision. What a report leaves open is named.
"""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.exporter import core
from services.simulator import reading
from shared.domain.pod import Pod
from shared.domain.report import Freshness, Report
from shared.kubelet.admission import admit, build, drop_stale, placements, remove, start_containers
from shared.kubelet.config import KubeletConfig, MachineConfig, ZoneConfig
from shared.kubelet.cpuset import union
from shared.kubelet.machine import KubeletState
from shared.kubelet.observed import Open, observed
from tests.fixtures.examples import examples
from tests.kubelet.machines import GIB, GPU, kubelet, regular_machine
from tests.scheduler.kubelet_worlds import random_pod

POLICIES = ("none", "best-effort", "restricted", "single-numa-node")
CPU_OPTIONS: tuple[dict[str, str], ...] = (
    {},
    {"full-pcpus-only": "true"},
    {"distribute-cpus-across-numa": "true"},
    {"align-by-socket": "true"},
    {"strict-cpu-reservation": "true"},
    {"prefer-align-cpus-by-uncorecache": "true"},
)


def random_kubelet(rng: random.Random) -> KubeletState:
    zones = rng.choice((1, 2, 2, 4, 8))
    policy = rng.choice(POLICIES)
    options = rng.choice(CPU_OPTIONS)
    masks: list[int | None] = [None, *(1 << zone for zone in range(zones)), 1 | 1 << zones - 1]
    gpus = {f"g{number}": rng.choice(masks) for number in range(rng.randint(0, 3 * zones))}
    topology = rng.choice(({}, {"prefer-closest-numa-nodes": "true"})) if policy != "none" else {}
    if policy == "single-numa-node" and "align-by-socket" in options:
        options = {}
    return kubelet(
        zones,
        policy,
        rng.choice(("container", "pod")),
        rng.choice((2, 4)),
        gpus,
        cpu_options=options,
        topology_options=topology,
    )


def a_life(rng: random.Random, state: KubeletState) -> KubeletState:
    """Pods come, start and end. The managers' state may still hold rejected and ended pods."""
    for number in range(rng.randint(0, 12)):
        pod = random_pod(rng, f"p{number}")
        state = admit(state, pod).state
        if pod.uid in state.pods and rng.random() < 0.7:
            state = start_containers(state, pod)
        if state.pods and rng.random() < 0.3:
            state = remove(state, rng.choice(list(state.pods)))
    return state


def report(state: KubeletState, stored: bool = True) -> Report:
    scan = reading.scan(
        state, (active.pod for active in state.pods.values()), Freshness("boot", 1), stored
    )
    node_report = core.report("n1", "test", scan, core.Rules())
    return msgspec.json.decode(msgspec.json.encode(node_report), type=Report)


def holdings(state: KubeletState) -> tuple[object, ...]:
    """Return everything that matters for the next admission."""
    cpus = {uid: union(held.values()) for uid, held in state.cpu.entries.items()}
    devices = {uid: _by_resource(held) for uid, held in state.devices.held.items()}
    used = {name: ids for name, ids in state.devices.in_use.items() if ids}
    return state.cpu.shared, cpus, state.memory.nodes, state.memory.entries, devices, used


def _by_resource(held: Any) -> dict[str, frozenset[str]]:
    by_name: dict[str, frozenset[str]] = {}
    for resources in held.values():
        for name, ids in resources.items():
            by_name[name] = by_name.get(name, frozenset()) | ids
    return by_name


@settings(max_examples=examples(100), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 1 << 30))
def test_a_report_and_the_manifests_are_the_kubelets_state(seed: int) -> None:
    rng = random.Random(seed)
    state = a_life(rng, random_kubelet(rng))
    pods = [active.pod for active in state.pods.values()]
    again = observed(report(state), pods)
    assert isinstance(again, KubeletState), again
    assert again.kubelet.cpu == state.kubelet.cpu
    assert again.kubelet.topology == state.kubelet.topology
    assert again.devices.registered == state.devices.registered
    assert set(again.pods) == set(state.pods)
    assert holdings(drop_stale(again)) == holdings(drop_stale(state))
    newcomer = random_pod(rng, "newcomer")
    ours, theirs = admit(again, newcomer), admit(state, newcomer)
    assert (ours.admitted, ours.reason) == (theirs.admitted, theirs.reason)
    if theirs.admitted:
        assert placements(ours.state, newcomer) == placements(theirs.state, newcomer)


@pytest.mark.parametrize("policy", ["Static", "None"])
def test_zones_without_memory_to_hand_out_are_made_again(policy: str) -> None:
    """One zone has hugepages only; of another zone all memory is reserved."""
    machine = regular_machine(3, 2)
    sizes: tuple[tuple[int, dict[int, int]], ...] = (
        (64, {2 << 20: 2048}),
        (4, {2 << 20: 2048}),
        (8, {}),
    )
    zones = [
        ZoneConfig(index, memory * GIB, pages, machine.zones[index].distances)
        for index, (memory, pages) in enumerate(sizes)
    ]
    reserved = {0: {"memory": GIB}, 2: {"memory": 8 * GIB}} if policy == "Static" else {}
    config = KubeletConfig(
        "restricted",
        cpu_policy="static",
        reserved_cpus="0",
        memory_policy=policy,
        reserved_memory=reserved,
    )
    state = build(MachineConfig(tuple(zones), machine.cpus), config)
    assert isinstance(state, KubeletState)
    again = observed(report(state), [])
    assert isinstance(again, KubeletState), again
    for node, zone_memory in zip(
        state.memory.nodes.values(), again.memory.nodes.values(), strict=True
    ):
        assert (
            policy == "None"
            or {name: (held.allocatable, held.free) for name, held in node.tables.items()}.items()
            <= {
                name: (held.allocatable, held.free) for name, held in zone_memory.tables.items()
            }.items()
        )
    assert again.kubelet.machine.zones[1].memory_bytes == 4 * GIB


def one_pod(pod: Pod, **settings: object) -> KubeletState:
    verdict = admit(kubelet(**settings), pod)  # type: ignore[arg-type]
    assert verdict.admitted
    return verdict.state


def test_without_checkpoints_what_init_containers_hold_is_open() -> None:
    rng = random.Random(3)
    pods = (random_pod(rng, f"p{number}") for number in range(200))
    pod = next(pod for pod in pods if pod.qos == "Guaranteed" and pod.containers[0].kind == "init")
    state = one_pod(pod, policy="best-effort", gpus={"g0": 1, "g1": 2})
    assert observed(report(state, stored=False), [pod]) == Open(("init containers",))


def test_a_block_over_several_zones_is_open_without_the_memory_managers_own_figures() -> None:
    from tests.kubelet.machines import container

    pod = Pod("u", "ns", "wide", "Guaranteed", (container(cpu=2, memory=90),))
    state = one_pod(pod, policy="best-effort")
    assert observed(report(state, stored=False), [pod]) == Open(("memory groups",))
    assert isinstance(observed(report(state), [pod]), KubeletState)


@pytest.mark.parametrize(
    ("without", "named"),
    [
        ({"cpus": None}, "cpus"),
        ({"devices": None}, "devices"),
        ({"policy": "unknown"}, "policy"),
        ({"placements": None}, "placements"),
    ],
)
def test_what_an_older_exporter_does_not_say_is_named(
    without: dict[str, object], named: str
) -> None:
    changed = msgspec.structs.replace(report(kubelet(gpus={"g": 1})), **without)
    assert observed(changed, []) == Open((named,))


def test_devices_that_a_pod_holds_and_that_fell_ill_are_kept_apart() -> None:
    from shared.kubelet.device_state import Device, DevicePool
    from tests.kubelet.machines import container

    pod = Pod("u", "ns", "p", "Guaranteed", (container(cpu=1, memory=1, gpus=1),))
    state = one_pod(pod, gpus={"g0": 1, "g1": 1})
    pool = DevicePool(
        {name: Device(1, name not in state.devices.in_use[GPU]) for name in ("g0", "g1")}
    )
    state = msgspec.structs.replace(
        state, devices=msgspec.structs.replace(state.devices, registered={GPU: pool})
    )
    again = observed(report(state), [pod])
    assert isinstance(again, KubeletState)
    assert again.devices.registered == {GPU: pool}
