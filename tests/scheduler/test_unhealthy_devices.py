"""Devices that became unhealthy while a pod holds them: they hide no healthy ones, no pod is
evicted because of them, and none gets them when their pod ends. Unhealthy devices that no container
holds vanish from the listing, and are tried wherever they may lie. The judge is the kubelet model.
"""

from __future__ import annotations

import random
from collections.abc import Collection
from itertools import pairwise

import msgspec
import pytest

from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.node_info import offered
from services.scheduler.snapshot.result import Placed
from shared.domain.idlist import format_ids, parse_ids
from shared.domain.pod import Container, Pod
from shared.domain.refusal import Refusal
from shared.domain.report import DeviceGroup, Report
from shared.events.cluster_events import PodEnded
from shared.hints.devices import UNHEALTHY
from shared.kubelet.admission import admit, drop_stale, remove
from shared.kubelet.device_state import Device
from shared.kubelet.machine import KubeletState
from shared.ledger.unhealthy import MOST_UNLISTED, MOST_UNLISTED_RESOURCES, unlisted
from tests.kubelet.machines import GIB, GPU, kubelet
from tests.scheduler.cycle_worlds import World
from tests.scheduler.kubelet_worlds import NODE, proven_world, report_of, scene
from tests.scheduler.test_cycle_soundness import RULES
from tests.scheduler.varied_scenes import made
from tests.vectors.indistinguishable import with_devices_elsewhere

SCENES = range(9000, 9060)


def asking(name: str, cpus: int, gpus: int, priority: int = 0) -> Pod:
    amounts = {"cpu": cpus * 1000, "memory": GIB, **({GPU: gpus} if gpus else {})}
    return Pod(
        name,
        "ns",
        name,
        "Guaranteed",
        (Container("c", "app", amounts, amounts),),
        priority=priority,
    )


def running(state: KubeletState, *pods: Pod) -> KubeletState:
    for pod in pods:
        admission = admit(state, pod)
        assert admission.admitted
        state = admission.state
    return state


def ill(state: KubeletState, devices: Collection[str]) -> KubeletState:
    """Return the kubelet with these GPUs unhealthy."""
    pool = {
        each: Device(device.mask, each not in devices)
        for each, device in state.devices.registered[GPU].items()
    }
    registered = {**state.devices.registered, GPU: pool}
    return msgspec.structs.replace(
        state, devices=msgspec.structs.replace(state.devices, registered=registered)
    )


def held_by(state: KubeletState, uid: str) -> frozenset[str]:
    return state.devices.held[uid]["c"][GPU]


def one_of_two_is_ill() -> KubeletState:
    """Zone 0 has free CPUs and two GPUs, of which pod x holds the unhealthy one. In zone 1 pod y
    holds the CPUs.
    """
    gpus = {"a": 1, "b": 1, "c": 2, "d": 2}
    state = running(
        kubelet(2, "single-numa-node", "container", cores_per_zone=4, gpus=gpus), asking("x", 2, 1)
    )
    state = ill(state, held_by(state, "x"))
    return running(state, asking("y", 8, 0))


def test_a_held_unhealthy_device_hides_no_healthy_one() -> None:
    state = one_of_two_is_ill()
    world, pod = proven_world(state, CycleConfig()), asking("p", 2, 1)
    assert admit(state, pod).admitted
    assert world.cluster.verdict(pod, NODE) is None
    assert isinstance(world.cluster.place(pod), Placed)


def test_no_pod_is_evicted_if_a_healthy_device_is_free() -> None:
    world = proven_world(one_of_two_is_ill(), CycleConfig())
    assert (
        world.cluster.nominate(asking("p", 2, 1, priority=10), world.ledger.pods, (), None) is None
    )


def test_the_known_state_is_asked_before_amounts_that_hide_a_device() -> None:
    """By a report that counts the unhealthy device as one of the healthy ones, as exporters before
    did.
    """
    state = one_of_two_is_ill()
    world, report = proven_world(state, CycleConfig()), report_of(state, stored=True)
    amounts = {**report.zones[0].resources}
    amounts[GPU] = msgspec.structs.replace(amounts[GPU], available=0)
    zones = (msgspec.structs.replace(report.zones[0], resources=amounts), report.zones[1])
    world.report(msgspec.structs.replace(report, zones=zones))
    high = asking("p", 2, 1, priority=10)
    assert isinstance(world.cluster.verdict(high, NODE), Refusal)
    assert world.cluster.nominate(high, world.ledger.pods, (), None) is None


def test_with_its_pod_an_unhealthy_device_is_gone_and_another_pods_stays_held() -> None:
    """Three GPUs in one zone: x holds an unhealthy one, y a healthy one, and the third is free.
    After the end of x only the third is free.
    """
    gpus = {"a": 1, "b": 1, "c": 1}
    state = running(
        kubelet(1, "single-numa-node", "container", cores_per_zone=8, gpus=gpus),
        asking("x", 1, 1),
        asking("y", 1, 1),
    )
    state = ill(state, held_by(state, "x"))
    world = proven_world(state, CycleConfig())
    world.fold("pod/x", PodEnded("x", "deleted", NODE))
    assert world.ledger.nodes[NODE].free_min[0][GPU] == 1
    without = drop_stale(remove(state, "x"))
    for wanted in (1, 2):
        pod = asking("p", 1, wanted)
        assert (world.cluster.verdict(pod, NODE) is None) is admit(without, pod).admitted


def test_nor_does_the_search_take_it_for_free() -> None:
    """A free GPU in zone 0 would draw the first container there, and leave zone 1 to the second."""
    state = kubelet(
        2, "single-numa-node", "container", cores_per_zone=4, gpus={"a": 1, "b": 1, "c": 2}
    )
    state = running(state, asking("x", 1, 1), asking("y", 2, 1))
    state = ill(state, held_by(state, "x"))
    world, without = proven_world(state, CycleConfig()), drop_stale(remove(state, "x"))
    world.fold("pod/x", PodEnded("x", "deleted", NODE))
    first, second = asking("p", 2, 1).containers[0], asking("p", 7, 0).containers[0]
    pod = Pod("p", "ns", "p", "Guaranteed", (first, msgspec.structs.replace(second, name="d")))
    assert not admit(without, pod).admitted
    assert world.cluster.verdict(pod, NODE) is not None


def test_a_refusal_says_that_devices_may_be_unhealthy() -> None:
    """The kubelet counts the device that x holds: two of zone 0 would be enough, so that two zones
    are not preferred for two.
    """
    state = running(two_and_one(), asking("x", 1, 1))
    world = proven_world(ill(state, held_by(state, "x")), CycleConfig())
    refusal = world.cluster.verdict(asking("p", 9, 2), NODE)
    assert refusal is not None
    assert f"(undecided: {UNHEALTHY})" in refusal.remedy
    for sure in (asking("q", 99, 1), asking("r", 99, 0)):
        verdict = world.cluster.verdict(sure, NODE)
        assert verdict is not None
        assert UNHEALTHY not in verdict.remedy, (
            "one device is preferred of one zone whatever else lies where"
        )


def test_where_one_zone_must_do_nothing_hangs_on_unhealthy_devices() -> None:
    world = proven_world(one_of_two_is_ill(), CycleConfig())
    refusal = world.cluster.verdict(asking("p", 2, 2), NODE)
    assert refusal is not None
    assert UNHEALTHY not in refusal.remedy


def seen_before_and_after(
    state: KubeletState, devices: Collection[str]
) -> tuple[World, KubeletState]:
    """A report shows all devices as healthy; in the next one these are unhealthy."""
    world, state_after = proven_world(state, CycleConfig()), ill(state, devices)
    world.report(msgspec.structs.replace(report_of(state_after, stored=True), boot_time_ms=2))
    return world, state_after


def two_and_one(policy: str = "restricted") -> KubeletState:
    """Two GPUs in zone 0, one in zone 1; memory in any zone."""
    return kubelet(
        2, policy, gpus={"a": 1, "b": 1, "c": 2}, memory_policy="None", reserved_memory={}
    )


@pytest.mark.parametrize("lost", ["a", "b"])
def test_a_device_that_vanished_from_the_listing_may_make_one_zone_enough(lost: str) -> None:
    """In the report each zone has one GPU, so two GPUs need two zones. The kubelet also counts the
    unhealthy one, so that one zone with both would be enough, and it prefers that.
    """
    world, state_after = seen_before_and_after(two_and_one(), {lost})
    pod = asking("p", 9, 2)
    refusal = world.cluster.verdict(pod, NODE)
    assert not admit(state_after, pod).admitted
    assert refusal is not None
    assert f"undecided: {UNHEALTHY}" in refusal.remedy
    assert world.cluster.verdict(asking("q", 1, 1), NODE) is None


def test_a_device_that_is_listed_again_is_doubted_no_more_nor_one_of_an_earlier_boot() -> None:
    state = two_and_one()
    world, state_after = seen_before_and_after(state, {"b"})
    pod = asking("p", 9, 2)
    assert world.cluster.verdict(pod, NODE) is not None
    world.report(msgspec.structs.replace(report_of(state_after, stored=True), boot_time_ms=3))
    assert world.ledger.nodes[NODE].unlisted_devices == {GPU: "b"}
    world.report(msgspec.structs.replace(report_of(state, stored=True), boot_time_ms=4))
    assert world.ledger.nodes[NODE].unlisted_devices == {}
    world.report(msgspec.structs.replace(report_of(state_after, stored=True), boot_time_ms=5))
    assert world.ledger.nodes[NODE].unlisted_devices == {GPU: "b"}
    world.report(
        msgspec.structs.replace(report_of(state_after, stored=True), boot_id="next", boot_time_ms=1)
    )
    assert world.ledger.nodes[NODE].unlisted_devices == {}
    assert world.cluster.verdict(pod, NODE) is None, (
        "nobody knows of a device that this boot never listed"
    )


@pytest.mark.parametrize("told", [True, False])
def test_a_device_that_no_report_of_this_boot_listed_is_known_by_the_nodes_object(
    told: bool,
) -> None:
    """The Node object counts all devices and offers the healthy ones. A device that neither it nor
    a report shows would be unknown.
    """
    state_after = ill(two_and_one(), {"b"})
    world, pod = proven_world(state_after, CycleConfig()), asking("p", 9, 2)
    seen = world.ledger.nodes[NODE].observed
    assert seen is not None
    world.fold(f"node/{NODE}", msgspec.structs.replace(seen, unhealthy={GPU: 1} if told else {}))
    assert not admit(state_after, pod).admitted
    assert (world.cluster.verdict(pod, NODE) is not None) is told
    assert world.cluster.verdict(asking("q", 1, 1), NODE) is None


def test_a_listing_that_names_others_every_time_is_remembered_within_limits() -> None:
    """Listings of a broken plugin or a foreign exporter must neither fill the memory nor stop the
    fold.
    """
    listed_before: dict[str, str] = {}
    reports = [Report("n", "boot", at, devices=claimed(at)) for at in range(100)]
    for earlier, report in pairwise(reports):
        listed_before = unlisted(earlier, listed_before, report)
    assert len(listed_before) == MOST_UNLISTED_RESOURCES
    assert {len(parse_ids(ids)) for ids in listed_before.values()} == {1, MOST_UNLISTED}


def claimed(at: int) -> tuple[DeviceGroup, ...]:
    """Return a report with 900 devices and one resource that the ledger does not know."""
    devices = DeviceGroup(GPU, (0,), format_ids(f"x{at}-{number}" for number in range(900)))
    return devices, DeviceGroup(f"made.up/{at}", (0,), "a")


@pytest.mark.parametrize("policy", ["none", "single-numa-node", "restricted"])
def test_a_resource_that_vanished_whole_is_offered_no_more(policy: str) -> None:
    """No manager tracks the resource any more, but the Node object may show its old amount for a
    while."""
    world, state_after = seen_before_and_after(kubelet(1, policy, gpus={"a": 1}), {"a"})
    pod = asking("p", 1, 1)
    assert not admit(state_after, pod).admitted
    assert world.cluster.verdict(pod, NODE) is not None


def test_the_end_of_an_init_containers_pod_gives_back_no_unhealthy_device() -> None:
    """No listing names its holder; the checkpoint does."""
    init = msgspec.structs.replace(asking("x", 1, 1).containers[0], name="i", kind="init")
    first = Pod("x", "ns", "x", "Guaranteed", (init, asking("x", 1, 0).containers[0]))
    state = running(kubelet(1, "single-numa-node", gpus={"a": 1, "b": 1}), first, asking("y", 1, 1))
    (lost,) = state.devices.held["x"]["i"][GPU]
    world, state_after = seen_before_and_after(state, {lost})
    world.fold("pod/x", PodEnded("x", "deleted", NODE))
    pod = asking("p", 1, 1)
    assert not admit(drop_stale(remove(state_after, "x")), pod).admitted
    assert world.cluster.verdict(pod, NODE) is not None


@pytest.mark.parametrize(
    ("policy", "scope"),
    [("restricted", "container"), ("restricted", "pod"), ("best-effort", "container")],
)
def test_a_pod_that_passes_is_admitted_wherever_unlisted_devices_lie(
    policy: str, scope: str
) -> None:
    """This holds for any number of them: kubelets are compared that differ in nothing else."""
    passed = 0
    for seed in range(300):
        made_scene = made(seed, policy, scope, 1 + seed % 5, 0, {"unhealthy devices": 1.0})
        state, pod = made_scene.seen.base, made_scene.seen.pod
        if made_scene.world.cluster.verdict(pod, NODE) is None:
            others = list(with_devices_elsewhere(state, pod))
            assert all(admit(each, pod).admitted for each in others), seed
            passed += len(others) > 1
    assert passed > 5


def with_ill_ones(seed: int, policy: str, scope: str) -> tuple[KubeletState, Pod]:
    """A random kubelet with half of its held GPUs unhealthy."""
    seen, rng = scene(seed, policy, scope, unconfirmed=0), random.Random(f"{seed} ill")
    held_devices = sorted(
        {
            each
            for uid in seen.base.pods
            for own in seen.base.devices.held.get(uid, {}).values()
            for each in own.get(GPU, ())
        }
    )
    return ill(seen.base, [each for each in held_devices if rng.random() < 0.5]), seen.pod


def judged(world: World, state: KubeletState, pod: Pod) -> bool:
    """Return whether the node takes the pod, and check that the kubelet agrees."""
    passes, refusal = admit(state, pod).admitted, world.cluster.verdict(pod, NODE)
    assert (refusal is None) is passes, (refusal, passes)
    return passes


@pytest.mark.parametrize(("policy", "scope"), RULES)
def test_next_to_held_unhealthy_devices_the_verdict_is_the_kubelets(
    policy: str, scope: str
) -> None:
    """This also holds after the end of a pod that the report still lists."""
    refused = 0
    for seed in SCENES:
        state, pod = with_ill_ones(seed, policy, scope)
        world = proven_world(state, CycleConfig())
        refused += judged(world, state, pod)
        for uid in sorted(state.pods)[:1]:
            world.fold(f"pod/{uid}", PodEnded(uid, "deleted", NODE))
            judged(world, drop_stale(remove(state, uid)), pod)
    assert refused > len(SCENES) // 4


def test_what_a_node_offers_is_not_kept_from_before_a_report_that_does_not_count_yet() -> None:
    """Nothing else about the node has changed, and a new scheduler would not know the old offer."""
    world, state_after = seen_before_and_after(two_and_one(), {"a"})
    observed = world.ledger.nodes[NODE].observed
    assert observed is not None
    world.observe(NODE, allocatable={**observed.allocatable, GPU: 3})
    node_info = world.cluster.node(NODE)
    assert node_info is not None
    assert node_info.allocatable[GPU] == 2
    world.report(
        msgspec.structs.replace(
            report_of(state_after), placements=None, fingerprint="pfp0v001x", boot_time_ms=9
        )
    )
    assert world.ledger.nodes[NODE].report is not world.ledger.nodes[NODE].basis
    assert node_info.allocatable == offered(world.ledger.nodes[NODE])
    assert node_info.allocatable[GPU] == 3
