"""The exporter asks the kubelet for allocatable resources again when they may have changed, and not
with every scan.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from services.exporter.answers import Allocatable, DeviceGroup, ListedPod
from services.exporter.scan import NodeReader
from services.exporter.settings import ExporterSettings, NodeSpec
from shared.kubelet.checkpoint_devices import DEVICE_FILE, DeviceCheckpoint, write_devices
from tests.exporter.kubelets import write_sysfs


class Asked:
    """A kubelet with two GPUs that counts the calls for allocatable resources."""

    def __init__(self) -> None:
        self.devices: tuple[DeviceGroup, ...] = (
            DeviceGroup("x.com/gpu", ("g0",), (0,)),
            DeviceGroup("x.com/gpu", ("g1",), (1,)),
        )
        self.times = 0

    async def pods(self) -> tuple[ListedPod, ...]:
        return ()

    async def allocatable(self) -> Allocatable:
        self.times += 1
        return Allocatable((1, 2, 3, 5, 6, 7), (), self.devices)

    async def close(self) -> None:
        return None


class Node:
    """The files of a node, and a reader of them."""

    def __init__(self, folder: Path, machine_interval_s: float = 3600.0) -> None:
        self.folder, self.socket, self.source = folder / "kubelet", folder / "k.sock", Asked()
        self.socket.touch()
        write_sysfs(folder / "sys")
        (self.folder / "device-plugins").mkdir(parents=True, exist_ok=True)
        spec = NodeSpec("n1", str(self.socket), str(folder / "sys"), str(self.folder))
        given = ",".join((spec.socket, spec.sysfs, spec.kubelet_dir))
        settings = ExporterSettings(
            nodes=(f"n1={given}",), interval_s=0.001, machine_interval_s=machine_interval_s
        )
        self.reader = NodeReader(spec, settings, self.source)

    def registered(self, *ids: str) -> None:
        data = write_devices(DeviceCheckpoint(registered={"x.com/gpu": ids, "x.com/none": ()}))
        draft = self.folder / "draft"
        draft.write_bytes(data)
        draft.replace(self.folder / "device-plugins" / DEVICE_FILE)

    async def asks(self) -> bool:
        """Scan once. Return whether the scan called GetAllocatableResources."""
        earlier = self.source.times
        scan = await self.reader.scan()
        assert scan.allocatable.devices == self.source.devices
        return self.source.times > earlier


async def test_the_same_devices_of_the_same_kubelet_are_asked_for_once(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.registered("g0", "g1")
    assert [await node.asks() for _ in range(3)] == [True, False, False]
    node.registered("g1", "g0")
    assert not await node.asks(), "a checkpoint's order is its own"


async def test_a_change_of_device_health_reads_allocatable_again(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.registered("g0", "g1")
    assert await node.asks()
    whole = node.source.devices
    node.source.devices = whole[:1]
    node.registered("g0")
    assert [await node.asks() for _ in range(2)] == [True, False]
    node.source.devices = whole
    node.registered("g0", "g1")
    assert await node.asks()


async def test_a_restarted_kubelet_is_read_until_its_devices_return(tmp_path: Path) -> None:
    """The checkpoint names devices from before the restart. The kubelet offers them again only
    after their plugin has registered.
    """
    node = Node(tmp_path)
    node.registered("g0", "g1")
    assert await node.asks()
    whole, node.source.devices = node.source.devices, ()
    node.socket.unlink()
    node.socket.touch()
    assert [await node.asks() for _ in range(2)] == [True, True]
    node.source.devices = whole
    assert [await node.asks() for _ in range(2)] == [True, False]


@pytest.mark.parametrize("cause", ["no checkpoint", "interval", "failure"])
async def test_without_a_checkpoint_every_scan_reads_allocatable(
    tmp_path: Path, cause: str
) -> None:
    node = Node(tmp_path, machine_interval_s=3600.0 if cause != "interval" else 0.001)
    if cause != "no checkpoint":
        node.registered("g0", "g1")
    assert await node.asks()
    if cause == "failure":
        node.reader.forget()
    await asyncio.sleep(0.01)
    assert await node.asks()
