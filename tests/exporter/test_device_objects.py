"""Device objects that the exporter makes from folders of the kernel and of the GPU driver."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from services.exporter.device_objects import AGAIN_LOOKS, DeviceObjects, device_entries
from services.exporter.settings import NodeSpec
from shared.kube.device_objects import devices_of
from shared.kube.port import Answer, Kube
from shared.owned.devices import Device, VirtualFunctions

PERCENT = {"koordinator.sh/gpu-core": 100, "koordinator.sh/gpu-memory-ratio": 100}


def card(folder: Path, path: str, link: str, **files: str) -> Path:
    """Make a PCI device with these files, at a path of bridges, and the link to it."""
    device = folder / "sys/devices" / path
    device.mkdir(parents=True)
    for name, text in files.items():
        (device / name).write_text(text + "\n")
    place = folder / "sys" / link
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(device)
    return device


def machine(folder: Path, zones: int = 2) -> None:
    """Two GPUs behind one switch, one without a driver, and an RDMA card with two functions."""
    for zone in range(zones):
        (folder / f"sys/devices/system/node/node{zone}").mkdir(parents=True)
    for minor, address in enumerate(("0000:3b:00.0", "0000:3c:00.0", "0000:ff:00.0")):
        path = f"pci0000:3a/0000:3a:00.0/0000:3a:01.0/{address}"
        link = f"bus/pci/devices/{address}"
        card(folder, path, link, vendor="0x10de", numa_node="1", **{"class": "0x030200"})
        if minor < 2:
            about = folder / "proc/driver/nvidia/gpus" / address
            about.mkdir(parents=True)
            text = f"Model: X\nGPU UUID: \t GPU-{minor}\nDevice Minor: \t {minor}\n"
            (about / "information").write_text(text)
    nic = card(folder, "pci0000:00/0000:00:01.0/0000:09:00.0", "bus/nic", numa_node="-1")
    port = folder / "sys/class/infiniband/mlx5_0/ports/1"
    port.mkdir(parents=True)
    (port / "state").write_text("4: ACTIVE\n")
    (port.parent.parent / "device").symlink_to(nic)
    for number in range(2):
        function = nic.parent / f"0000:09:00.{number + 1}"
        function.mkdir()
        (nic / f"virtfn{number}").symlink_to(function)
    audio = "pci0000:3a/0000:3a:00.0/0000:3a:01.0/0000:3b:00.1"
    card(folder, audio, "bus/pci/devices/0000:3b:00.1", vendor="0x10de", **{"class": "0x040300"})


def read(folder: Path) -> tuple[Device, ...]:
    entries = device_entries(folder / "sys", folder / "proc")
    event = devices_of("n1", "1", {"spec": {"devices": entries}})
    assert not event.problem
    return event.devices


def test_gpus_and_rdma_cards_are_listed_with_zone_switch_and_functions(tmp_path: Path) -> None:
    machine(tmp_path)
    functions = (VirtualFunctions({}, {"0000:09:00.1": 0, "0000:09:00.2": 1}),)
    gpus = [Device("gpu", n, PERCENT, 1, "0000:3a:00.0", id=f"GPU-{n}") for n in range(2)]
    rdma = {"koordinator.sh/rdma": 100}
    assert read(tmp_path) == (
        *gpus, Device("rdma", 0, rdma, None, functions=functions, id="0000:09:00.0"),
    )  # fmt: skip


def test_a_machine_with_one_zone_has_its_cards_there_and_a_dead_port_is_unhealthy(
    tmp_path: Path,
) -> None:
    machine(tmp_path, zones=1)
    (tmp_path / "sys/class/infiniband/mlx5_0/ports/1/state").write_text("1: DOWN\n")
    *_, rdma = read(tmp_path)
    assert (rdma.zone, rdma.pcie, rdma.is_healthy) == (0, "0000:00:01.0", False)


def test_cards_of_nested_switches_share_their_root_port(tmp_path: Path) -> None:
    """The PXB pairs of a DGX A100 (`nvidia-smi topo -m` in NVIDIA/nccl#1505): GPUs 0 and 1 with two
    network cards in zone 3, GPUs 2 and 3 in zone 1, and so on, each group behind bridges of one
    root port. Two ports of one root complex are two groups.
    """
    for zone in range(8):
        (tmp_path / f"sys/devices/system/node/node{zone}").mkdir(parents=True)
    for group, zone in enumerate((3, 1, 7, 5)):
        port = f"pci0000:{group // 2 * 8}0/0000:{group // 2 * 8}0:0{group % 2 + 1}.1"
        for number in (2 * group, 2 * group + 1):
            bus = f"{16 + number:02x}"
            gpu = f"{port}/0000:01:00.0/0000:02:0{number}.0/0000:{bus}:00.0"
            link, about = f"bus/pci/devices/0000:{bus}:00.0", tmp_path / "proc/driver/nvidia/gpus"
            card(tmp_path, gpu, link, vendor="0x10de", numa_node=str(zone), **{"class": "0x0302"})
            (about / f"0000:{bus}:00.0").mkdir(parents=True)
            (about / f"0000:{bus}:00.0/information").write_text(f"Device Minor: {number}\n")
            nested = f"{port}/0000:01:00.0/0000:02:0{number}.0/0000:03:00.0/0000:04:0{number}.0"
            nic = card(tmp_path, f"{nested}/0000:{bus}:01.0", f"bus/{bus}", numa_node=str(zone))
            port_state = tmp_path / f"sys/class/infiniband/mlx5_{number}/ports/1"
            port_state.mkdir(parents=True)
            (port_state / "state").write_text("4: ACTIVE\n")
            (port_state.parent.parent / "device").symlink_to(nic)
    devices = read(tmp_path)
    assert [device.type for device in devices] == ["gpu"] * 8 + ["rdma"] * 8
    switches: dict[tuple[int | None, str], list[int]] = {}
    for device in devices:
        switches.setdefault((device.zone, device.pcie), []).append(device.minor)
    pairs = [[0, 1, 0, 1], [2, 3, 2, 3], [4, 5, 4, 5], [6, 7, 6, 7]]
    assert [zone for zone, _ in switches] == [3, 1, 7, 5]
    assert list(switches.values()) == pairs


def test_a_machine_without_cards_has_none(tmp_path: Path) -> None:
    assert read(tmp_path) == ()


class Api:
    def __init__(self) -> None:
        self.answers = [Answer(403, message="forbidden")]
        self.applied: list[dict[str, Any]] = []

    async def apply_device(self, name: str, device: dict[str, Any]) -> Answer:
        self.applied.append(device)
        return self.answers.pop() if self.answers else Answer(200)


async def test_an_object_is_written_on_change_and_again_after_many_looks(tmp_path: Path) -> None:
    api, problems = Api(), list[str]()
    spec = NodeSpec("n1", "socket", str(tmp_path / "sys"))
    writer = DeviceObjects(cast("Kube", api), [spec], str(tmp_path / "proc"), problems.append)
    await writer.write(spec)
    assert api.applied == []
    machine(tmp_path)
    await writer.write(spec)
    await writer.write(spec)
    assert "k8s/components/exporter-devices" in problems[0]
    assert (problems[1:], len(api.applied)) == ([""], 2)
    for _ in range(AGAIN_LOOKS):
        await writer.write(spec)
    assert len(api.applied) == 2
    await writer.write(spec)
    assert len(api.applied) == 3
