"""Devices that Topolog chooses: from the Device object to the annotation of the Binding."""

from __future__ import annotations

from typing import Any

import pytest

from services.binder.core import Work, binding_annotations
from services.scheduler.explain.empty_nodes import EmptyNodes
from services.scheduler.filter.constraints.registry import constrained
from shared.domain.pod import Pod
from shared.domain.state_hash import state_hash
from shared.domain.zone_allocation import (
    DEVICE_ALLOCATED,
    RESOURCE_STATUS,
    DeviceHolding,
    ZoneAllocation,
)
from shared.events import streams
from shared.events.cluster_events import PodEnded
from shared.events.scheduling_events import (
    PodAllocationFound,
    PodDevicesLost,
    PodNominated,
    PodReserved,
    PodVerdictChanged,
)
from shared.events.surroundings_events import SurroundingEnded
from shared.owned.device_request import ALLOCATE_HINT, JOINT_ALLOCATE
from tests.scheduler.owned.given import BOARD, OwnedWorld, share

GPU, HALF, RDMA = "nvidia.com/gpu", "koordinator.sh/gpu", "koordinator.sh/rdma"


def asking(name: str, devices: dict[str, int], cpu: int = 1_000, **fields: Any) -> Pod:
    """A pod as the observer reads it, which keeps the keys of other schedulers."""
    pod = share(name, cpu, **fields)
    container = pod.containers[0]
    requests = {**container.requests, **devices}
    parts = (type(container)("c", "app", requests, dict(devices)),)
    return constrained(type(pod)(**{**_fields(pod), "containers": parts}), {})


def _fields(pod: Pod) -> dict[str, Any]:
    return {name: getattr(pod, name) for name in pod.__struct_fields__}


def world_with_devices(policy: Any = "single-numa-node", **devices: Any) -> OwnedWorld:
    world = OwnedWorld(policy)
    world.node(allocatable={GPU: 4})
    world.devices(**devices)
    return world


def held(reserved: PodReserved) -> list[tuple[str, int]]:
    assert reserved.allocation is not None
    return [(card.type, card.minor) for card in reserved.allocation.devices]


def waits(world: OwnedWorld) -> str:
    """Return the message of the last pod without a node."""
    messages = [event.message for _, event in world.log if isinstance(event, PodVerdictChanged)]
    return messages[-1] if messages else ""


def test_cpus_come_from_the_zone_of_the_gpu_and_shares_fill_a_card() -> None:
    world = world_with_devices()
    made = world.place(asking("first", {HALF: 50}))
    made |= world.place(asking("second", {HALF: 50}), asking("whole", {GPU: 2}))
    assert held(made["first"]) == held(made["second"]) == [("gpu", 0)]
    assert held(made["whole"]) == [("gpu", 2), ("gpu", 3)]
    allocation = made["whole"].allocation
    assert allocation is not None
    assert list(allocation.zones) == [1]
    assert world.place(asking("third", {HALF: 50}))["third"].allocation is not None
    assert world.place(asking("two", {GPU: 2})) == {}
    assert "Insufficient" in waits(world)


def test_a_pod_whose_gpus_no_zone_has_waits_for_no_empty_node_of_the_type() -> None:
    """An empty node was once asked without its devices, and named as one that would help."""
    world = world_with_devices()
    assert world.place(asking("wide", {GPU: 3})) == {}
    text = "node(s) had no NUMA zone for the pod (no zone has the requested gpu devices free)"
    assert text in waits(world)
    assert "best: 0" not in waits(world)
    empty = EmptyNodes(world.config.cycle)
    assert empty.zone_waits(world.core.ledger) == {("zone", f"cpu 1, {GPU} 3", ""): 1}
    world.place(asking("first", {GPU: 1}, cpu=10_000), asking("second", {GPU: 1}, cpu=10_000))
    assert world.place(asking("two", {GPU: 2})) == {}
    waiting = empty.zone_waits(world.core.ledger)
    assert waiting["zone", f"cpu 1, {GPU} 2", "like n1"] == 1


def test_the_log_restores_who_holds_which_device() -> None:
    world = world_with_devices()
    world.place(asking("first", {HALF: 50}), asking("card", {RDMA: 100}))
    again = world.again()
    assert state_hash(again.ledger) == state_hash(world.core.ledger)
    world.core = again
    assert held(world.place(asking("second", {GPU: 1}))["second"]) == [("gpu", 1)]
    world.tell(streams.pod("uid-first"), PodEnded("uid-first", "succeeded", "n1"))
    assert held(world.place(asking("third", {GPU: 1}))["third"]) == [("gpu", 0)]


def test_a_pod_with_another_hint_is_of_another_class() -> None:
    world = world_with_devices()
    hint = {ALLOCATE_HINT: '{"rdma":{"vfSelector":{}}}'}
    made = world.place(asking("plain", {RDMA: 10}), asking("hinted", {RDMA: 10}, annotations=hint))
    virtual = [
        bool(holding.functions)
        for name in ("plain", "hinted")
        if (allocation := made[name].allocation) is not None
        for holding in allocation.devices
    ]
    assert virtual == [False, True]


def test_the_binding_has_koordinators_annotation() -> None:
    world = world_with_devices()
    hint = {ALLOCATE_HINT: '{"rdma":{"vfSelector":{}}}'}
    pod = asking("p", {HALF: 50, RDMA: 10}, annotations=hint)
    reserved = world.place(pod)["p"]
    work = Work("uid-p", "n1", 1, predicted=reserved.predicted, certain=True)
    work.allocation = reserved.allocation
    annotations = binding_annotations(work)
    assert annotations[DEVICE_ALLOCATED] == (
        '{"gpu":[{"minor":0,"resources":{"koordinator.sh/gpu-core":"50",'
        '"koordinator.sh/gpu-memory":"40Gi","koordinator.sh/gpu-memory-ratio":"50"},"id":"GPU-0"}],'
        '"rdma":[{"minor":0,"resources":{"koordinator.sh/rdma":"10"},"id":"0000:00:00.0",'
        '"extension":{"vfs":[{"minor":3,"busID":"0000:00:00.1"}]}}]}'
    )
    assert annotations["topolog.io/placement"] == "c=0;gpu:0;rdma:0"
    bare = ZoneAllocation(devices=(DeviceHolding("gpu", 1, {"koordinator.sh/gpu-core": 100}),))
    assert RESOURCE_STATUS not in binding_annotations(Work("u", "n1", 1, allocation=bare))


def test_without_a_policy_pods_get_devices_and_no_zone() -> None:
    world = world_with_devices("none")
    made = world.place(*[asking(f"p{at}", {GPU: 1}, 10_000) for at in range(3)])
    assert sorted(minor for r in made.values() for _, minor in held(r)) == [0, 1, 2]
    assert all(r.allocation is not None and not r.allocation.zones for r in made.values())


def test_a_pod_of_another_scheduler_may_have_any_device_until_its_annotation_shows_which() -> None:
    world = world_with_devices()
    stranger = asking("stranger", {HALF: 50}, scheduler_name="other")
    world.seen(stranger, "n1")
    assert world.place(asking("whole", {GPU: 1})) == {}
    assert held(world.place(asking("half", {HALF: 50}))["half"]) == [("gpu", 0)]
    status = '{"gpu":[{"minor":1,"resources":{"koordinator.sh/gpu-core":"50"}}]}'
    strange = {DEVICE_ALLOCATED: status.replace("1", "9", 1)}
    world.seen(asking("stranger", {HALF: 50}, scheduler_name="other", annotations=strange), "n1")
    world.turn()
    assert not [event for _, event in world.log if isinstance(event, PodAllocationFound)]
    annotations = {DEVICE_ALLOCATED: status, RESOURCE_STATUS: '{"cpuset":"2"}'}
    world.seen(
        asking("stranger", {HALF: 50}, scheduler_name="other", annotations=annotations), "n1"
    )
    world.turn()
    assert world.turn() == [] or world.core.ledger.pods["uid-whole"].node == "n1"
    takeovers = [event for _, event in world.log if isinstance(event, PodAllocationFound)]
    assert [card.minor for event in takeovers for card in event.allocation.devices] == [1]


def test_keys_about_devices_are_kept_where_topolog_chooses_them() -> None:
    world = OwnedWorld()
    world.node("plain", allocatable={GPU: 4})
    joint = {JOINT_ALLOCATE: '{"deviceTypes":["gpu","rdma"],"requiredScope":"SamePCIe"}'}
    assert world.place(asking("joint", {GPU: 1, RDMA: 10}, annotations=joint)) == {}
    assert "device-joint-allocate" in waits(world)
    world.node("n1", allocatable={GPU: 4})
    world.devices()
    world.turn()
    reserved = [event for _, event in world.log if isinstance(event, PodReserved)]
    assert held(reserved[-1]) == [("gpu", 0), ("rdma", 0)]
    broken = {ALLOCATE_HINT: '{"gpu":{"selector":{"matchExpressions":[]}}}'}
    assert world.place(asking("broken", {GPU: 1}, annotations=broken)) == {}
    assert ALLOCATE_HINT in waits(world)


def test_a_node_whose_object_lists_no_gpu_leaves_gpus_to_the_kubelet() -> None:
    world = world_with_devices(devices=BOARD[4:])
    assert held(world.place(asking("p", {GPU: 1}))["p"]) == []
    assert world.place(asking("share", {HALF: 50})) == {}


def test_devices_of_unknown_place_serve_pods_that_may_have_every_zone() -> None:
    unplaced = tuple(type(card)("gpu", card.minor, card.resources) for card in BOARD[:4])
    assert world_with_devices(devices=unplaced).place(asking("p", {GPU: 1})) == {}
    restricted = world_with_devices("restricted", devices=unplaced)
    assert held(restricted.place(asking("p", {GPU: 1}))["p"]) == [("gpu", 0)]


def test_a_device_that_its_object_no_longer_shows_is_a_conflict_once() -> None:
    world = world_with_devices()
    world.place(asking("p", {GPU: 1}))
    world.devices(devices=BOARD[1:])
    assert world.turn() == [PodDevicesLost("uid-p", "n1", ("gpu 0",))]
    world.devices(devices=BOARD[1:], resource_version="2")
    assert world.turn() == []
    world.devices()
    assert world.turn() == [PodDevicesLost("uid-p", "n1", ())]
    world.tell("devices/n1", SurroundingEnded("devices", "n1"))
    assert world.turn() == []
    assert held(world.place(asking("q", {GPU: 1}))["q"]) == []


@pytest.mark.parametrize("priority", [0, 10])
def test_victims_free_their_devices_for_the_nominated_pod_alone(priority: int) -> None:
    world = world_with_devices()
    low = [asking(f"p{at}", {GPU: 1}) for at in range(4)]
    world.place(*low)
    for pod in low:
        world.seen(pod, "n1")
    world.seen(asking("urgent", {GPU: 1}, priority=priority))
    made = [event for _ in range(2) for event in world.turn()]
    nominated = [event for event in made if isinstance(event, PodNominated)]
    assert len(nominated) == (priority > 0)
    for event in nominated:
        (victim,) = event.victims
        assert [card.type for card in event.devices] == ["gpu"]
        assert world.core.ledger.nodes["n1"].device_claims == {"uid-urgent": event.devices}
        world.tell(streams.pod(victim), PodEnded(victim, "deleted", "n1"))
        assert world.place(asking("late", {GPU: 1}, priority=100)) == {}
        world.turn()
        assert world.core.ledger.pods["uid-urgent"].node == "n1"
        assert "uid-urgent" not in world.core.ledger.nodes["n1"].device_claims
