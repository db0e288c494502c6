"""Choices of cards: examples, and properties over pods that come one after another."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.domain.refusal import Refusal
from shared.domain.zone_allocation import DeviceHolding
from shared.kubelet.masks import mask_of
from shared.owned.admit import admit
from shared.owned.device_choice import DevicesError, choose_devices, completed, needs_of
from shared.owned.device_hints import device_hints_of
from shared.owned.device_request import DeviceRequestError, device_amounts, gpu_needs
from shared.owned.devices import (
    GPU,
    HOPPER,
    Device,
    DeviceHint,
    DeviceRequest,
    OwnedDevices,
    Partition,
    Partitions,
    PartitionSpec,
    VirtualFunctions,
    free_devices_of,
)
from shared.owned.free import free_of
from shared.owned.values import Allocation
from tests.owned.machines import GIB, node, share

CORE, RATIO = "koordinator.sh/gpu-core", "koordinator.sh/gpu-memory-ratio"
MEMORY, RDMA = "koordinator.sh/gpu-memory", "koordinator.sh/rdma"
CARD = {CORE: 100, RATIO: 100, MEMORY: 80 * GIB}
# Eight GPUs, two a switch, four a zone, and a network card a switch.
BOARD = (
    *(Device("gpu", minor, CARD, minor // 4, str(minor // 2)) for minor in range(8)),
    *(
        Device(
            "rdma", switch, {RDMA: 100}, switch // 2, str(switch),
            functions=(VirtualFunctions({"kind": "fast"}, {f"{switch}.1": 1, f"{switch}.2": 2}),),
        )
        for switch in range(4)
    ),
)  # fmt: skip


def asked(requests: dict[str, int], **changes: object) -> DeviceRequest:
    amounts = device_amounts(requests)
    return DeviceRequest(amounts, gpu_needs(amounts.get(GPU, {})), **changes)  # type: ignore[arg-type]


def minors(
    request: DeviceRequest, *held: DeviceHolding, mask: int | None = None, **fields: object
) -> dict[str, list[int]]:
    board = OwnedDevices(BOARD, **fields)  # type: ignore[arg-type]
    chosen = choose_devices(free_devices_of(board, held), request, mask, is_scored=True)
    by_type: dict[str, list[int]] = {}
    for holding in chosen:
        by_type.setdefault(holding.type, []).append(holding.minor)
    return by_type


def gpu(*numbers: int) -> list[DeviceHolding]:
    return [DeviceHolding("gpu", number, CARD) for number in numbers]


def test_gpus_come_from_the_deepest_part_of_the_tree_that_is_used_most() -> None:
    assert minors(asked({"nvidia.com/gpu": 2})) == {"gpu": [0, 1]}
    assert minors(asked({"nvidia.com/gpu": 1}), *gpu(4)) == {"gpu": [5]}
    assert minors(asked({"nvidia.com/gpu": 3}), *gpu(0)) == {"gpu": [1, 2, 3]}
    scope = {"gpu": DeviceHint(scope="PCIe")}
    with pytest.raises(DevicesError):
        minors(asked({"nvidia.com/gpu": 3}, hints=scope))


def test_partitions_keep_larger_ones_whole_and_the_best_score_comes_first() -> None:
    assert minors(asked({"nvidia.com/gpu": 2}), *gpu(4, 5), partitions=HOPPER) == {"gpu": [6, 7]}
    table = {2: (Partition(0b11, score=1), Partition(0b1100, score=2))}
    assert minors(asked({"nvidia.com/gpu": 2}), partitions=table) == {"gpu": [2, 3]}
    restricted = asked({"nvidia.com/gpu": 2}, partition=PartitionSpec(is_restricted=True))
    with pytest.raises(DevicesError, match="Partitioned"):
        minors(restricted, *gpu(2), partitions=table)
    fast = asked({"nvidia.com/gpu": 2}, partition=PartitionSpec(bandwidth=1))
    with pytest.raises(DevicesError, match="Partitioned"):
        minors(fast, partitions=table)
    with pytest.raises(DevicesError, match="Partitioned"):
        minors(asked({"nvidia.com/gpu": 3}), partitions=HOPPER, keeps_partitions=True)


def test_joint_types_share_switches() -> None:
    both = {"nvidia.com/gpu": 4, RDMA: 50}
    joint = asked(both, joint=("gpu", "rdma"), same_pcie=True)
    assert minors(joint) == {"gpu": [0, 1, 2, 3], "rdma": [0, 1]}
    taken = DeviceHolding("rdma", 1, {RDMA: 100})
    with pytest.raises(DevicesError, match="Joint"):
        minors(joint, taken)
    assert minors(asked(both, joint=("gpu", "rdma")), taken)["rdma"] == [0, 2]


def test_cards_by_selector_function_and_strategy() -> None:
    every = asked({RDMA: 10}, hints={"rdma": DeviceHint(strategy="ApplyForAll")})
    assert minors(every) == {"rdma": [0, 1, 2, 3]}
    counted = asked({RDMA: 2}, hints={"rdma": DeviceHint(strategy="RequestsAsCount")})
    assert minors(counted) == {"rdma": [0, 1]}
    alone = asked({RDMA: 10}, hints={"rdma": DeviceHint(exclusive="PCIeLevel")})
    assert minors(alone, DeviceHolding("rdma", 0, {RDMA: 1})) == {"rdma": [1]}
    function = asked({RDMA: 10}, hints={"rdma": DeviceHint(function_selector={})})
    used = DeviceHolding("rdma", 0, {RDMA: 1}, {"0.1": 1, "0.2": 2})
    assert minors(function, used, mask=0b1) == {"rdma": [1]}
    slow = asked({RDMA: 10}, hints={"rdma": DeviceHint(function_selector={"kind": "slow"})})
    with pytest.raises(DevicesError):
        minors(slow)


def test_the_hint_of_the_best_gpus_outweighs_cpu_and_memory() -> None:
    free = free_devices_of(OwnedDevices(BOARD), gpu(0))
    hints = device_hints_of(free, asked({"nvidia.com/gpu": 1}))["gpu"]
    assert [(hint.mask, hint.preferred, hint.score) for hint in hints] == [
        (0b01, True, 500), (0b10, True, 0), (0b11, False, 500),
    ]  # fmt: skip


def test_cpus_follow_the_gpus_over_both_zones_under_restricted() -> None:
    """4 CPUs and 8 GPUs: no kubelet would align them, because 4 CPUs fit one zone."""
    owner = node(policy="restricted")
    cards = free_devices_of(OwnedDevices(BOARD), [])
    outcome = admit(owner, free_of(owner, []), share(4000), (cards, asked({"nvidia.com/gpu": 8})))
    assert isinstance(outcome, Allocation)
    assert (outcome.mask, len(outcome.devices)) == (0b11, 8)
    cards = free_devices_of(OwnedDevices(BOARD), gpu(0))
    outcome = admit(owner, free_of(owner, []), share(4000), (cards, asked({"nvidia.com/gpu": 8})))
    assert isinstance(outcome, Refusal)
    assert outcome.phrase == "Insufficient GPU Devices"


@pytest.mark.parametrize(
    ("requests", "needs"),
    [
        ({"koordinator.sh/gpu": 50}, (1, {CORE: 50, RATIO: 50}, True)),
        ({CORE: 200, RATIO: 200}, (2, {CORE: 100, RATIO: 100}, False)),
        ({"koordinator.sh/gpu.shared": 2, RATIO: 100}, (2, {RATIO: 50}, True)),
        ({MEMORY: GIB}, (1, {MEMORY: GIB}, True)),
    ],
)
def test_requests_are_counted_in_cards(
    requests: dict[str, int], needs: tuple[int, dict[str, int], bool]
) -> None:
    gpus = asked(requests).gpu
    assert (gpus.count, gpus.per_card, gpus.is_shared) == needs


@pytest.mark.parametrize(
    "requests",
    [
        {"koordinator.sh/gpu": 150},
        {RDMA: 101},
        {CORE: 50},
        {"nvidia.com/gpu": 1, "koordinator.sh/gpu": 100},
        {"koordinator.sh/gpu.shared": 3, RATIO: 100},
    ],
)
def test_a_request_that_means_nothing_is_refused(requests: dict[str, int]) -> None:
    with pytest.raises(DeviceRequestError):
        device_amounts(requests)


def test_memory_and_ratio_of_a_gpu_complete_each_other() -> None:
    half = completed(BOARD[0], DeviceHolding("gpu", 0, {RATIO: 50}))
    assert half.resources == {RATIO: 50, MEMORY: 40 * GIB}
    assert completed(BOARD[0], DeviceHolding("gpu", 0, {MEMORY: 20 * GIB})).resources[RATIO] == 25


amounts = st.sampled_from(
    [{"nvidia.com/gpu": count} for count in (1, 2, 3)]
    + [{"koordinator.sh/gpu": 50}, {"nvidia.com/gpu": 1, RDMA: 50}, {RDMA: 30}, {MEMORY: 9 * GIB}]
)


@settings(max_examples=60)
@given(st.lists(st.tuples(amounts, st.sampled_from([None, 1, 2, 3]), st.booleans()), max_size=9))
def test_no_card_gives_more_than_it_has_and_none_outside_the_mask(
    pods: list[tuple[dict[str, int], int | None, bool]],
) -> None:
    board, holdings = OwnedDevices(BOARD, partitions=HOPPER), list[DeviceHolding]()
    functions = {"rdma": DeviceHint(function_selector={"kind": "fast"})}
    for requests, mask, takes_function in pods:
        request = asked(requests, hints=functions if takes_function else {})
        free = free_devices_of(board, holdings)
        try:
            chosen = choose_devices(free, request, mask, is_scored=True)
        except DevicesError:
            continue
        assert all(mask is None or mask >> _zone(holding) & 1 for holding in chosen)
        holdings += [
            completed(free.devices[holding.type][holding.minor], holding) for holding in chosen
        ]
    for device in BOARD:
        of_device = [h for h in holdings if (h.type, h.minor) == (device.type, device.minor)]
        for name, size in device.resources.items():
            assert sum(holding.resources.get(name, 0) for holding in of_device) <= size
        taken = [function for holding in of_device for function in holding.functions]
        assert len(taken) == len(set(taken))


boards = st.lists(
    st.tuples(st.sampled_from([0, 1, 2, -1, None]), st.sampled_from("ab"), st.booleans()),
    min_size=2,
    max_size=7,
)
hints = st.sampled_from(
    [{}, {"gpu": DeviceHint(scope="PCIe")}, {"rdma": DeviceHint(function_selector={})}]
)


@settings(max_examples=150)
@given(boards, amounts, hints, st.sampled_from([None, HOPPER]), st.sampled_from([0, 0b111]),
       st.lists(st.integers(0, 6), max_size=3), st.booleans())  # fmt: skip
def test_hints_are_the_choices_under_every_mask(
    board: list[tuple[int | None, str, bool]],
    requests: dict[str, int],
    hints: dict[str, DeviceHint],
    partitions: Partitions | None,
    every: int,
    held: list[int],
    is_joint: bool,
) -> None:
    """The plain reference chooses under each mask, and compares the GPUs with those under all."""
    devices = [Device("gpu", n, CARD, zone, pcie, {}, healthy)
               for n, (zone, pcie, healthy) in enumerate(board)]  # fmt: skip
    functions = (VirtualFunctions({}, {"1": 1}),)
    devices += [Device("rdma", n, {RDMA: 100}, zone, pcie, {}, healthy, functions)
                for n, (zone, pcie, healthy) in enumerate(board[::2])]  # fmt: skip
    node = OwnedDevices(tuple(devices), partitions)
    free = free_devices_of(node, gpu(*[n for n in held if n < len(board)]), every)
    request = asked(requests, hints=hints, joint=("gpu", "rdma") if is_joint else ())
    request = msgspec.structs.replace(request, same_pcie=is_joint)
    zones = {zone for zone, _, _ in board if zone is not None and zone >= 0}
    placed = [d.zone for d in devices if d.type in request.amounts]
    if every and None in placed:
        zones = {0, 1, 2}
    expected: dict[int, int] | None = {}
    masks = [m for m in range(1, 8) if not any(m >> z & 1 and z not in zones for z in range(3))]
    for mask in masks:
        counted = [sum(d.type == kind and d.zone is not None and d.zone >= 0 and mask >> d.zone & 1
                       for d in devices) for kind in request.amounts]  # fmt: skip
        try:
            needs = needs_of(free, request).count.values()
            if any(0 < have < need for have, need in zip(counted, needs, strict=True)):
                raise DevicesError
            chosen = choose_devices(free, request, mask, is_scored=False)
        except DevicesError:
            expected = None if mask == mask_of(zones) else expected
            continue
        if expected is not None:
            expected[mask] = mask_of(card.minor for card in chosen if card.type == "gpu")
    try:
        hints_of_masks = device_hints_of(free, request)
    except DevicesError:
        assert expected is None
        return
    best = (expected or {}).get(mask_of(zones))
    for listed in hints_of_masks.values():
        assert {h.mask: h.score for h in listed} == {
            mask: 500 if gpus == best else 0 for mask, gpus in (expected or {}).items()
        }
        narrow = {h.mask: h for h in listed if h.preferred}
        narrowest = device_hints_of(free, request, only_narrowest=True)
        assert narrow == {h.mask: h for h in next(iter(narrowest.values())) if h.preferred}


def _zone(holding: DeviceHolding) -> int:
    device = next(d for d in BOARD if (d.type, d.minor) == (holding.type, holding.minor))
    assert device.zone is not None
    return device.zone
