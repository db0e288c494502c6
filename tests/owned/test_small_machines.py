"""The choice of GPUs on every state of small machines, against the rules written out."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from shared.kubelet.masks import mask_of, nodes_of
from shared.owned.device_choice import DevicesError, choose_devices
from shared.owned.devices import (
    HOPPER,
    Device,
    DeviceHint,
    DeviceRequest,
    GpuNeeds,
    OwnedDevices,
    Partition,
    free_devices_of,
)
from tests.owned.test_devices import CARD, gpu

WHOLE = {"koordinator.sh/gpu-core": 100, "koordinator.sh/gpu-memory-ratio": 100}
# Zone and switch of each GPU.
MACHINES = (
    ((0, "a"), (0, "a"), (1, "b"), (1, "b")),
    ((0, "a"), (0, "b"), (0, "b"), (1, "c")),
    ((0, "a"), (1, "b"), (0, "a"), (1, "b")),
)
TABLES = (
    {size: HOPPER[size][: 4 // size] for size in (1, 2, 4)},
    {1: HOPPER[1][:4], 2: (Partition(0b101, 2), Partition(0b1010), Partition(0b11))},
)
LEVELS = {"": 0, "NUMANode": 2, "PCIe": 3}


def by_rule(
    machine: tuple[tuple[int, str], ...], used: int, usable: set[int], count: int, scope: str
) -> tuple[int, ...] | None:
    """Return the lowest GPUs of the deepest part that has enough; of equally deep ones, of the one
    with the most used parts from the node down to it.
    """
    node = set(range(len(machine)))
    zones = [{n for n in node if machine[n][0] == zone} for zone in sorted({z for z, _ in machine})]
    best: tuple[int, int] | None = None
    chosen: tuple[int, ...] | None = None
    for zone in zones:
        switches = sorted({machine[n][1] for n in zone})
        paths = [[node, zone, {n for n in zone if machine[n][1] == pcie}] for pcie in switches]
        for path in ([node], [node, zone], *paths):
            free = sorted(path[-1] & usable)
            rank = len(path), sum(any(used >> n & 1 for n in part) for part in path)
            if len(free) >= count and len(path) >= LEVELS[scope] and (not best or rank > best):
                best, chosen = rank, tuple(free[:count])
    return chosen


def by_table(
    table: dict[int, tuple[Partition, ...]], used: int, usable: set[int], count: int
) -> tuple[int, ...] | None:
    """Return the partition of the best score that is free and leaves the most larger ones free."""
    allowed = [p for p in table.get(count, ()) if not p.minors & used]
    allowed = [p for p in allowed if usable.issuperset(nodes_of(p.minors))]
    top = [p for p in allowed if p.score == max(other.score for other in allowed)]

    def left_whole(partition: Partition) -> int:
        whole = 0
        for size, weight in ((8, 10000), (4, 100), (2, 1)):
            listed = table.get(size, ()) if size >= count else ()
            best = max((p.score for p in listed), default=0)
            free = [p for p in listed if p.score == best]
            free = [p for p in free if not p.minors & (used | partition.minors)]
            whole += weight * sum(p.score for p in free)
        return whole

    return nodes_of(max(top, key=left_whole).minors) if top else None


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("table", [None, *TABLES])
def test_the_choice_follows_the_rules_in_every_state(machine: Any, table: Any) -> None:
    devices = tuple(Device("gpu", n, CARD, zone, pcie) for n, (zone, pcie) in enumerate(machine))
    node = OwnedDevices(devices, table)
    for used, count, mask, scope in product(range(16), range(1, 5), (None, 1, 2, 3), LEVELS):
        free = free_devices_of(node, gpu(*nodes_of(used)))
        request = DeviceRequest(
            {"gpu": dict.fromkeys(WHOLE, 100 * count)},
            GpuNeeds(count, WHOLE),
            {"gpu": DeviceHint(scope=scope)},  # type: ignore[arg-type]
        )
        usable = {n for n in range(4) if mask is None or mask >> machine[n][0] & 1}
        usable -= set(nodes_of(used))
        expected = by_table(table, used, usable, count) if table else None
        expected = expected or by_rule(machine, used, usable, count, scope)
        try:
            cards = choose_devices(free, request, mask, is_scored=True)
        except DevicesError:
            cards = ()
        answer = tuple(card.minor for card in cards)
        assert answer == (expected or ()), (used, count, mask, scope)
        assert not mask_of(answer) & used
