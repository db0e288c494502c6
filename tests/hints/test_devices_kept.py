"""Devices that init containers leave, some of them in no zone: the hints for the next container are
those of the kubelet model.

A real kubelet (1.36.2) ignores devices without a topology, and excludes no zone because of them;
with a device of an empty topology it has no hint. Listings do not distinguish the two, so both
are followed.
"""

from __future__ import annotations

import random

import msgspec
import pytest

from shared.domain.pod import Container, Pod
from shared.hints.devices import DeviceHints
from shared.kubelet import device_manager
from shared.kubelet.device_state import Device, register
from shared.kubelet.errors import AllocationError
from shared.kubelet.topology_manager import NO_HINT
from tests.kubelet.machines import GPU, kubelet
from tests.scheduler.kubelet_worlds import report_of

ZONES = 3


@pytest.mark.parametrize("seed", range(60))
def test_hints_after_init_containers_are_the_kubelets(seed: int) -> None:
    rng = random.Random(seed)
    gpus = {
        f"g{index}": Device(rng.choice([None, 0 if seed % 2 else None, 1, 2, 4]))
        for index in range(rng.randint(2, 6))
    }
    state = kubelet(ZONES, "best-effort")
    state = msgspec.structs.replace(state, devices=register(state.devices, GPU, gpus))
    report = report_of(state, stored=True)
    seen = DeviceHints().observe(report, (), "best-effort", fine=True)
    taken, asked = rng.randint(1, len(gpus)), rng.randint(1, len(gpus))
    first, second = ({GPU: amount} for amount in (taken, asked))
    pod = Pod(
        "p",
        "ns",
        "p",
        "Guaranteed",
        (Container("i", "init", first, first), Container("c", "app", second, second)),
    )
    state_after = device_manager.allocate(state.devices, pod, pod.containers[0], NO_HINT)
    assert not isinstance(state_after, AllocationError)
    (base,) = seen.states
    ways = seen.manager.allocate(base, None, ((GPU, taken),), "init", NO_HINT)
    hints_by_way = [seen.manager.hints(way, reusable, ((GPU, asked),)) for way, reusable in ways]
    assert (
        device_manager.container_hints(state_after, pod, pod.containers[1]) or None
    ) in hints_by_way


def test_a_device_without_a_zone_excludes_no_zone() -> None:
    """The pod keeps one device of zone 0 and one without a zone, so zone 0 is preferred for one
    device.
    """
    state = kubelet(2, "best-effort")
    state = msgspec.structs.replace(
        state, devices=register(state.devices, GPU, {"a": Device(1), "b": Device(None)})
    )
    seen = DeviceHints().observe(report_of(state, stored=True), (), "best-effort", fine=True)
    (state_after, kept), (strictly, kept_strictly) = seen.manager.allocate(
        seen.states[0], None, ((GPU, 2),), "init", NO_HINT
    )
    assert seen.manager.single(state_after, kept, ((GPU, 1),)) == 0b1
    (hint,) = (seen.manager.hints(state_after, kept, ((GPU, 1),)) or {})[GPU] or []
    assert (hint.mask, hint.preferred) == (0b1, True)
    assert seen.manager.single(strictly, kept_strictly, ((GPU, 1),)) == 0, (
        "a topology that names no zone touches none"
    )
    assert seen.manager.hints(strictly, kept_strictly, ((GPU, 1),)) == {GPU: []}
