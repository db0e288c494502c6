"""Resources that a container names in an amount of 0 (charts do: `nvidia.com/gpu: 0`). The Device
Manager hints at the zones with such devices all the same, and under scope pod memory of init
containers is in the hint if an app container names it.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import msgspec
import pytest

from services.scheduler.filter.topology.predict import predict
from services.scheduler.score.demand import _by_class
from services.scheduler.score.runner import STRATEGIES
from services.scheduler.select.cluster import Cluster
from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.node_info import Profile
from services.scheduler.snapshot.result import Placed
from services.scheduler.snapshot.topology_policy import Rule
from shared.domain.demand import outside_pod_hint, zonal_demand
from shared.domain.pod import Container, ContainerKind, Pod
from shared.domain.refusal import Reason
from shared.hints.request import request_of
from shared.kubelet.admission import admit, build, drop_stale, start_containers
from shared.kubelet.config import KubeletConfig
from shared.kubelet.device_state import Device, register
from shared.kubelet.machine import KubeletState
from shared.ledger.alike import kind_of
from tests.kubelet.machines import GIB, GPU, kubelet, regular_machine
from tests.scheduler.kubelet_worlds import NODE, Made, Scene, measured, truth, world_of
from tests.scheduler.test_cycle_soundness import RULES
from tests.scheduler.varied_scenes import observed

NIC = "example.com/nic"
PAGES = "hugepages-2Mi"


def container(name: str, cpu: int, kind: ContainerKind = "app", **named: int) -> Container:
    requests = {
        "cpu": cpu,
        "memory": GIB,
        **{_NAMES[each]: amount for each, amount in named.items()},
    }
    return Container(name, kind, requests, requests)


_NAMES = {"gpu": GPU, "nic": NIC, "pages": PAGES}


def pod(name: str, *containers: Container, **fields: Any) -> Pod:
    return Pod(name, "ns", name, "Guaranteed", containers, **fields)


def judged(state: KubeletState, new: Pod, *coming: Pod) -> str | None:
    seen = Scene(drop_stale(state), coming, new)
    cluster, expected = world_of(seen, CycleConfig()).cluster, truth(seen)
    refusal = cluster.verdict(new, NODE)
    assert (refusal is None) is (expected == "admitted"), (expected, refusal)
    assert isinstance(cluster.place(new), Placed) is (refusal is None)
    return None if refusal is None else refusal.reason


def occupied(policy: str, scope: str = "container") -> KubeletState:
    """Return a kubelet whose zone 1 has the GPU and no free CPU."""
    state = kubelet(2, policy, scope, gpus={"g": 0b10})
    return start_containers(admit(state, big := pod("big", container("c", 8000))).state, big)


@pytest.mark.parametrize("scope", ["container", "pod"])
def test_a_container_goes_where_devices_are_of_which_it_asks_for_none(scope: str) -> None:
    state = occupied("single-numa-node", scope)
    assert judged(state, pod("plain", container("c", 2000))) is None
    assert judged(state, pod("named", container("c", 2000, gpu=0))) is Reason.NO_SINGLE_ZONE


def test_under_scope_pod_any_container_draws_the_pod() -> None:
    state = occupied("single-numa-node", "pod")
    assert (
        judged(state, pod("named", container("c", 2000), container("d", 500, gpu=0)))
        is Reason.NO_SINGLE_ZONE
    )


def test_the_device_is_named_with_what_helps() -> None:
    seen = Scene(occupied("single-numa-node"), (), pod("named", container("c", 2000, gpu=0)))
    refusal = world_of(seen, CycleConfig()).cluster.verdict(seen.pod, NODE)
    assert refusal is not None
    assert (refusal.resource, refusal.container) == (GPU, "c")
    assert refusal.remedy.startswith(f"remove {GPU} from the container's limits")


def test_no_pod_takes_the_zone_that_another_is_drawn_to() -> None:
    """Both zones have 8 CPUs. The pending pod must have zone 1, and the new pod would take the
    devices there.
    """
    state = kubelet(2, "single-numa-node", gpus={"g": 0b10}, cores_per_zone=4)
    coming = pod("coming", container("c", 6000, gpu=0))
    assert judged(state, pod("new", container("c", 6000, gpu=1)), coming) is not None
    assert judged(state, pod("plain", container("c", 6000)), coming) is None


def test_no_pod_takes_the_only_zone_with_devices_from_a_pod_drawn_there() -> None:
    """By amounts, zone 2 is left for the pending pod, but the new pod takes zone 1, which is
    lower.
    """
    state = kubelet(3, "single-numa-node", gpus={"g": 0b10, "h": 0b10}, cores_per_zone=6)
    for arriving in (
        pod("full", container("c", 10_000)),
        pod("there", container("c", 4000, gpu=1)),
    ):
        state = start_containers(admit(state, arriving).state, arriving)
    coming = container("c", 6000, gpu=0)
    assert judged(state, pod("new", container("c", 4000)), pod("coming", coming)) is not None
    assert (
        judged(state, pod("new", container("c", 4000)), pod("coming", container("c", 6000))) is None
    )


def test_a_kubelet_of_another_version_may_look_for_it_in_any_zone() -> None:
    """A kubelet of 1.36 takes zone 1. An older one takes zone 0, the only zone that has
    CPUs and the new pod's other resources.
    """
    state = kubelet(2, "single-numa-node", gpus={"g": 0b10}, cores_per_zone=4)
    state = msgspec.structs.replace(
        state, devices=register(state.devices, NIC, {"n": Device(0b01)})
    )
    coming, new = (
        pod("coming", container("c", 6000, gpu=0)),
        pod("new", container("c", 6000, nic=1)),
    )
    older = msgspec.structs.replace(
        state, devices=msgspec.structs.replace(state.devices, hint_nodes="all")
    )
    for version, kubelet_there, expected in (
        ("v1.36.2", state, "admitted"),
        ("v1.35.4", older, "refused"),
    ):
        seen = Scene(kubelet_there, (coming,), new, frozenset({"coming"}))
        world = world_of(seen, CycleConfig())
        observed(world, state, version)
        assert truth(seen) == expected
        assert (world.cluster.verdict(new, NODE) is None) is (expected == "admitted"), version


def test_it_is_expected_where_its_devices_are() -> None:
    cluster = world_of(
        Scene(kubelet(2, "single-numa-node", gpus={"g": 0b10}), (), pod("", container("c", 1))),
        CycleConfig(),
    ).cluster
    drawn, plain = pod("drawn", container("c", 6000, gpu=0)), pod("plain", container("c", 6000))
    assert _expected(cluster, drawn) == {"c": (1,)}
    assert _expected(cluster, plain) == {"c": (0,)}
    next_to = world_of(
        Scene(kubelet(2, "single-numa-node", gpus={"g": 0b10}), (drawn,), plain), CycleConfig()
    ).cluster
    assert _expected(next_to, plain) == {"c": (0,)}


def _expected(cluster: Cluster, new: Pod) -> dict[str, tuple[int, ...]]:
    node_info = cluster.node(NODE)
    assert node_info is not None
    plan, _ = cluster.evaluator.plan(cluster.evaluator.pod_class(new), node_info)
    return predict(node_info, plan)


def test_memory_that_an_app_container_names_is_in_the_hint_of_the_pod() -> None:
    """Pages are left in zone 1 alone: the hint leaves zone 0 out, though no app container asks for
    any.
    """
    state = kubelet(2, "single-numa-node", "pod", cores_per_zone=4)
    other_pod = pod("other", container("c", 1000, pages=4 * GIB))
    state = start_containers(admit(state, other_pod).state, other_pod)
    init = container("i", 500, "init", pages=2 * GIB)
    assert judged(state, pod("named", init, container("c", 1000, pages=0))) is None
    assert judged(state, pod("silent", init, container("c", 1000))) is not None


def test_a_request_by_name_is_another_request() -> None:
    """Both pods have the same amounts in each container."""
    init = container("i", 500, "init", pages=2 * GIB)
    tracked = ("cpu", "memory", PAGES)
    named = zonal_demand(pod("named", init, container("c", 1000, pages=0)), tracked)
    silent = zonal_demand(pod("silent", init, container("c", 1000)), tracked)
    assert [outside_pod_hint(each) for each in (named, silent)] == [False, True]
    assert [dict(request_of(each).whole[-1]).get(PAGES, 0) // GIB for each in (named, silent)] == [
        2,
        0,
    ]
    assert request_of(named).key != request_of(silent).key


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_container_that_takes_nothing_has_no_part_in_scores(strategy: str) -> None:
    new = pod("p", container("c", 1000), Container("d", "app", {}, {GPU: 0}))
    state = kubelet(2, "single-numa-node", gpus={"g": 0b10})
    assert isinstance(
        world_of(Scene(state, (), new), CycleConfig(strategy=strategy)).cluster.place(new), Placed
    )


def test_what_takes_nothing_is_in_no_demand_that_nodes_are_ranked_by() -> None:
    parts = kind_of(pod("p", container("c", 1000), Container("d", "app", {}, {GPU: 0})))
    assert list(_by_class(Counter({parts: 1}), Profile("", Rule(), ("cpu", GPU)), False)) == [
        (("cpu", 1000),)
    ]


def test_what_asks_for_nothing_demands_nothing() -> None:
    named = Container("c", "app", {}, {GPU: 0, NIC: 0})
    assert zonal_demand(Pod("p", "ns", "p", "BestEffort", (named,)), ("cpu", GPU, NIC)) == ()


@pytest.mark.parametrize(("policy", "scope"), RULES)
def test_the_verdict_is_the_kubelets(policy: str, scope: str) -> None:
    outcome = measured(range(150), policy, scope, 2, made=lambda seed: made(seed, policy, scope))
    assert outcome.unsound == []
    assert len(outcome.refused_needlessly) <= 1
    assert outcome.passed > 30


def made(seed: int, policy: str, scope: str) -> Made:
    """Devices of two resources lie in some zones; half of the containers name one and ask for
    none.
    """
    rng = random.Random(f"{seed} zeros")
    zones = rng.randint(2, 3)
    devices = {
        name: {
            f"{name}{zone}": Device(1 << zone)
            for zone in rng.sample(range(zones), rng.randint(1, zones))
        }
        for name in (GPU, NIC)
    }
    config = KubeletConfig(
        topology_policy=policy,
        topology_scope=scope,
        cpu_policy="static",
        reserved_cpus="0-1",
        memory_policy="Static",
        reserved_memory={zone: {"memory": GIB} for zone in range(zones)},
    )
    state = build(regular_machine(zones, 2), config, devices)
    assert isinstance(state, KubeletState)
    for number in range(rng.randint(0, 3)):
        verdict = admit(state, drawn := _drawn(rng, f"s{number}"))
        state = (
            start_containers(verdict.state, drawn)
            if verdict.admitted
            else drop_stale(verdict.state)
        )
    base, came = drop_stale(state), []
    for number in range(rng.randint(0, 2)):
        verdict = admit(state, drawn := _drawn(rng, f"u{number}"))
        if verdict.admitted:
            state = verdict.state
            came.append(drawn)
    seen = Scene(base, tuple(came), _drawn(rng, "new"))
    return Made(seen, world_of(seen, CycleConfig()))


def _drawn(rng: random.Random, name: str) -> Pod:
    parts = []
    first: tuple[ContainerKind, ...] = ("init", "sidecar")
    apps: tuple[ContainerKind, ...] = ("app",)
    kinds = [*rng.choices(first, k=rng.choice((0, 0, 1))), *apps * rng.choice((1, 2))]
    for number, kind in enumerate(kinds):
        named = {
            each: rng.choice((0, 0, 1))
            for each in rng.sample(("gpu", "nic"), rng.choice((0, 1, 1, 2)))
        }
        pages = {"pages": rng.choice((0, 0, 2, 4)) * GIB} if rng.random() < 0.3 else {}
        parts.append(
            container(
                f"c{number}", rng.choice((500, 1000, 1000, 2000, 3000)), kind, **named, **pages
            )
        )
    return pod(name, *parts)
