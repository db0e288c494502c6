"""Nodes whose kubelets choose devices, ranked by how near their free devices lie to each other."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.scheduler.score.predicted_zones import rank_words
from services.scheduler.score.ranks import (
    CLOSEST,
    OPTIMISTIC,
    closeness_of,
    rank_of,
    score_of,
    spread_of,
)
from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.result import Placed
from shared.domain.idlist import format_ids
from shared.domain.pod import Pod
from shared.domain.report import DeviceGroup, Placement, Zone, ZonedAmount
from shared.events.surroundings_events import NodeDevicesObserved
from shared.kubelet.preferred_gpus import PRODUCT
from shared.ledger.cards import ONE_PARTITION, ONE_SWITCH, Group, NearDevices, closeness
from shared.owned.devices import HOPPER, Device
from tests.scheduler.cycle_worlds import GPU, World, amounts, container, guaranteed, report, zone
from tests.scheduler.test_predicted_zones import chosen

NIC = "example.com/nic"
POLICIES = ("none", "best-effort", "restricted", "single-numa-node")


def board(node: str) -> tuple[Device, ...]:
    """Two zones of two switches, each with two GPUs and a network card."""
    return (
        *(Device("gpu", n, {}, n // 4, f"p{n // 2}", id=f"{node}-GPU-{n}") for n in range(8)),
        *(Device("rdma", n, {}, n // 2, f"p{n}", id=f"{node}-NIC-{n}") for n in range(4)),
    )


def put(
    world: World,
    name: str,
    held: str,
    policy: str = "single-numa-node",
    labels: dict[str, str] | None = None,
    **devices: Any,
) -> None:
    """Add a node on which a pod holds these cards, such as `GPU-1 NIC-0`."""
    cards = [f"{name}-{card}" for card in held.split()]
    zones, groups, items = list[Zone](), list[DeviceGroup](), list[ZonedAmount]()
    for number in range(2):
        size = {**amounts(16, 64, 4), NIC: 2}
        free = dict(size)
        for resource, ids in (
            (GPU, [f"{name}-GPU-{number * 4 + at}" for at in range(4)]),
            (NIC, [f"{name}-NIC-{number * 2 + at}" for at in range(2)]),
        ):
            groups.append(DeviceGroup(resource, (number,), format_ids(ids)))
            taken = [card for card in ids if card in cards]
            free[resource] -= len(taken)
            if taken:
                items.append(ZonedAmount(resource, (number,), len(taken), format_ids(taken)))
        zones.append(zone(number, free, size))
    made = msgspec.structs.replace(
        report(name, zones, policy),
        devices=tuple(groups),
        tracked=("cpu", "memory", GPU, NIC),
        placements=(Placement("ns", f"holder-{name}", "c", tuple(items)),) if items else (),
    )
    world.observe(name, labels, allocatable={**amounts(32, 128, 8), NIC: 4, "pods": 110})
    world.report(made)
    if devices.get("devices", True):
        fields = {"devices": board(name), **devices}
        world.fold(f"devices/{name}", NodeDevicesObserved(name, **fields))


def asks(name: str = "p", gpus: int = 2, nics: int = 0, cpus: int = 2) -> Pod:
    asked = {**amounts(cpus, 2, gpus), NIC: nics}
    return guaranteed(name, container("c", {each: n for each, n in asked.items() if n}))


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("order", [("far", "near"), ("near", "far")])
def test_a_node_with_free_devices_on_one_switch_comes_first(
    policy: str, order: tuple[str, ...]
) -> None:
    """Both have four free GPUs; on one of them each has a switch for itself."""
    cards_held = {"far": "GPU-0 GPU-2 GPU-4 GPU-6", "near": "GPU-0 GPU-1 GPU-4 GPU-5"}
    world = World()
    for name in order:
        put(world, name, cards_held[name], policy)
    for number in range(8):
        assert chosen(world, asks(f"p{number}")) == "near"
    assert "far" in {chosen(world, asks(f"q{number}", gpus=1)) for number in range(8)}


def test_a_gpu_and_a_network_card_share_a_switch() -> None:
    world = World()
    put(world, "far", "GPU-0 GPU-1 NIC-1 GPU-4 GPU-5 NIC-3 GPU-2 GPU-6")
    put(world, "near", "GPU-0 GPU-1 NIC-0 GPU-4 GPU-5 NIC-2")
    assert chosen(world, asks(gpus=1, nics=1)) == "near"


def test_gpus_of_a_partition_come_before_those_of_a_switch() -> None:
    world = World()
    crossed = {2: tuple(msgspec.structs.replace(p, minors=m) for p, m in zip(
        HOPPER[2], (0b101, 0b1010, 0b1010000, 0b10100000), strict=True))}  # fmt: skip
    put(world, "switch", "GPU-0 GPU-1 GPU-4 GPU-5 NIC-0")
    put(world, "partition", "GPU-0 GPU-2 GPU-4 GPU-6", partitions=crossed)
    assert chosen(world, asks()) == "partition"


KNOWN_PLUGIN = {PRODUCT: "NVIDIA-L40S"}


@pytest.mark.parametrize(
    ("policy", "cards_held", "labels", "predicted"),
    [
        ("single-numa-node", "GPU-0 GPU-4 GPU-5", KNOWN_PLUGIN, ("2-3",)),
        ("single-numa-node", "", KNOWN_PLUGIN, ("0-1", "2-3")),
        ("none", "GPU-0 GPU-2 GPU-5 GPU-7 GPU-6", KNOWN_PLUGIN, ("1,3",)),
        ("single-numa-node", "GPU-0 GPU-4 GPU-5", {}, ()),
    ],
)
def test_the_gpus_that_a_known_plugin_prefers_are_predicted(
    policy: str, cards_held: str, labels: dict[str, str], predicted: tuple[str, ...]
) -> None:
    world = World()
    put(world, "n", cards_held, policy, labels)
    placed = world.cluster.place(asks())
    assert isinstance(placed, Placed)
    assert placed.predicted_gpus == predicted


def test_a_node_whose_plugin_takes_gpus_of_several_partitions_comes_later() -> None:
    """Both have pairs of GPUs whose partition is not their switch; a plugin prefers the switch."""
    crossed = {2: tuple(msgspec.structs.replace(p, minors=m) for p, m in zip(
        HOPPER[2], (0b101, 0b1010, 0b1010000, 0b10100000), strict=True))}  # fmt: skip
    for name in ("a", "b"):
        world = World()
        put(world, "a", "", labels=KNOWN_PLUGIN if name == "b" else {}, partitions=crossed)
        put(world, "b", "", labels=KNOWN_PLUGIN if name == "a" else {}, partitions=crossed)
        assert {chosen(world, asks(f"p{number}")) for number in range(8)} == {name}


def test_a_node_without_a_device_object_is_as_far_as_possible() -> None:
    world = World()
    put(world, "unknown", "GPU-0 GPU-1 GPU-4 GPU-5", devices=False)
    put(world, "near", "GPU-0 GPU-1 GPU-4 GPU-5")
    assert chosen(world, asks()) == "near"
    ill = [msgspec.structs.replace(c, is_healthy=c.minor not in (2, 6)) for c in board("near")]
    world.fold("devices/near", NodeDevicesObserved("near", devices=tuple(ill)))
    assert "unknown" in {chosen(world, asks(f"p{number}")) for number in range(8)}


def test_a_pending_pod_may_have_any_of_the_devices() -> None:
    world = World()
    put(world, "n1", "GPU-0 GPU-4 GPU-5 GPU-6 GPU-7")
    pod = asks("first", gpus=1)
    placed = world.cluster.place(pod)
    assert isinstance(placed, Placed)
    world.cluster.assume(placed, pod)
    put(world, "n2", "GPU-0 GPU-1 GPU-4 GPU-5")
    node_info = world.cluster.node("n1")
    assert node_info is not None
    pod_class = world.cluster.evaluator.pod_class(asks())
    assert closeness_of(world.cluster.evaluator.rank(pod_class, node_info)) == 0
    assert chosen(world, asks()) == "n2"


def test_the_setting_turns_it_off_and_the_explanation_names_it() -> None:
    world = World(CycleConfig(rank_by_zones=False))
    put(world, "near", "GPU-0 GPU-1 GPU-4 GPU-5")
    put(world, "far", "GPU-0 GPU-2 GPU-4 GPU-6")
    assert "far" in {chosen(world, asks(f"p{number}")) for number in range(8)}
    assert rank_words(rank_of(7, 0, ONE_SWITCH)) == " (free devices on one PCIe switch)"
    both = " (counted as 2 further NUMA zones, free GPUs in one NVLink partition)"
    assert rank_words(rank_of(7, 2048, ONE_PARTITION)) == both
    assert rank_words(rank_of(7, 0)) == ""


def test_a_rank_keeps_spread_closeness_and_score_apart() -> None:
    for far in (0, 1, 5000):
        for near in range(CLOSEST + 1):
            for score in (0, 100):
                rank = rank_of(score, far, near)
                assert (spread_of(rank), closeness_of(rank), score_of(rank)) == (far, near, score)
                assert rank < OPTIMISTIC
        assert rank_of(100, far + 1, CLOSEST) + 500 < rank_of(0, far) - 1000
    assert rank_of(0, 0, 1) > rank_of(100, 0)


placed_cards = st.lists(st.tuples(st.integers(0, 1), st.sampled_from([GPU, NIC])), max_size=4)
groups = st.lists(st.tuples(st.sampled_from([0, 0, 2]), placed_cards), max_size=4)
few = st.integers(0, 2)


@settings(max_examples=150, deadline=None)
@given(groups, few, few, few, few, st.sampled_from([None, (0,), (1,), (0, 1)]))
def test_closeness_holds_whichever_devices_others_hold(
    drawn: list[tuple[int, list[tuple[int, str]]]],
    gpus: int,
    nics: int,
    other_gpus: int,
    taken_gpus: int,
    zones: tuple[int, ...] | None,
) -> None:
    """The plain reference lets the others take every set of devices that they may have."""
    cards = [(index, *card) for index, (_, listed) in enumerate(drawn) for card in listed]
    made = tuple(Group(size, _counted([c for c in cards if c[0] == index]))
                 for index, (size, _) in enumerate(drawn))  # fmt: skip
    near = NearDevices(made, _counted(cards), frozenset({GPU}))
    asked = {name: n for name, n in ((GPU, gpus), (NIC, nics)) if any(c[2] == name for c in cards)}
    taken = {0: {GPU: taken_gpus}}
    level_found = closeness(near, {GPU: gpus, NIC: nics}, {GPU: other_gpus}, taken, zones)
    levels = []
    for scope in [(0, 1)] if zones is None else [(one,) for one in zones]:
        in_scope = [card for card in cards if card[1] in scope]
        level = 0
        for index, (size, _) in enumerate(drawn):
            members = [card for card in in_scope if card[0] == index]
            others_take = other_gpus + (taken_gpus if 0 in scope else 0)
            gpus_here = [card for card in members if card[2] == GPU]
            is_all = others_take > len(gpus_here)
            sets = [gpus_here] if is_all else combinations(gpus_here, others_take)
            lasts = all(
                Counter(name for _, _, name in _without(members, gone))[name] >= n
                for gone in sets
                for name, n in asked.items()
                if n or name == GPU
            ) and not (is_all and GPU in asked)
            fits_size = size == 0 or 0 < asked.get(GPU, 0) <= size
            if lasts and fits_size and sum(asked.values()) > 1:
                level = max(level, ONE_PARTITION if size else ONE_SWITCH)
        levels.append(level)
    assert level_found == min(levels)


def _counted(cards: list[tuple[int, int, str]]) -> dict[int, dict[str, int]]:
    by_zone: dict[int, dict[str, int]] = {}
    for _, index, name in cards:
        by_zone.setdefault(index, Counter())[name] += 1
    return by_zone


def _without(cards: list[Any], gone: Any) -> list[Any]:
    rest = list(cards)
    for card in gone:
        rest.remove(card)
    return rest
