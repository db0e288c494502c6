"""Device objects (Koordinator's), for nodes without koordlet: NVIDIA GPUs and RDMA cards, with
zone, PCIe switch and virtual functions, as /sys and the GPU driver's folder in /proc show them.

1. A GPU without a loaded driver is left out. Its memory is in neither folder, so GPUs are given by
   percent only.
2. The switch is the root port above a card. Cards that share it reach each other without the host
   bridge (PIX and PXB of `nvidia-smi topo -m`), also in nested switches. koordlet names the root
   complex, which several ports may share. A machine with one zone may show -1, which is this zone.
3. An RDMA card without an active port is unhealthy.

Must not know reports.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

from services.exporter.settings import NodeSpec
from shared.kube.port import Answer, Kube

INTERVAL_S = 60.0
# Written again after so many looks without a change, because the object may have been deleted.
AGAIN_LOOKS = 10
NVIDIA = "0x10de"
# VGA and 3D controllers.
DISPLAY_CLASSES = ("0x0300", "0x0302")

Object = dict[str, Any]


class DeviceObjects:
    """Writes the Device objects of the nodes. `on_problem` gets the problem of the last write, and
    "" when writes succeed again.
    """

    def __init__(
        self, kube: Kube, specs: Collection[NodeSpec], proc: str, on_problem: Callable[[str], None]
    ) -> None:
        self._kube, self._specs, self._proc = kube, specs, Path(proc)
        self._on_problem, self._problem = on_problem, ""
        self._written: dict[str, tuple[list[Object], int]] = {}

    async def run(self) -> None:
        """Look and write until cancelled."""
        while True:
            for spec in self._specs:
                await self.write(spec)
            await asyncio.sleep(INTERVAL_S)

    async def write(self, spec: NodeSpec) -> None:
        """Write the object of one node if its cards changed, or were not written for long."""
        devices = device_entries(Path(spec.sysfs), self._proc)
        written, looks = self._written.get(spec.name, ([], 0))
        if devices == written and looks < AGAIN_LOOKS:
            self._written[spec.name] = written, looks + bool(devices)
            return
        answer = await self._kube.apply_device(spec.name, device_object(spec.name, devices))
        problem = ""
        if isinstance(answer, Answer) and answer.ok:
            self._written[spec.name] = devices, 0
        elif isinstance(answer, Answer):
            problem = (
                f"devices/{spec.name}: answered {answer.status} {answer.message[:200]}; apply "
                "k8s/components/exporter-devices"
            )
        else:
            problem = f"devices/{spec.name}: {answer.message}"
        if bool(problem) != bool(self._problem):
            self._on_problem(problem)
        self._problem = problem


def device_object(name: str, devices: list[Object]) -> Object:
    """Return the Device object of a node."""
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Device",
        "metadata": {"name": name},
        "spec": {"devices": devices},
    }


def device_entries(sysfs: Path, proc: Path) -> list[Object]:
    """Return the entries of `spec.devices`. Files that cannot be read count as empty."""
    zones = [entry for entry in _folders(sysfs / "devices/system/node") if entry.name != "node0"]
    has_one_zone = not any(zone.name.removeprefix("node").isdecimal() for zone in zones)
    return [*_gpus(sysfs, proc, has_one_zone), *_rdma_cards(sysfs, has_one_zone)]


def _gpus(sysfs: Path, proc: Path, has_one_zone: bool) -> Iterator[Object]:
    for folder in _folders(sysfs / "bus/pci/devices"):
        is_display = _text(folder / "class").startswith(DISPLAY_CLASSES)
        if not is_display or _text(folder / "vendor") != NVIDIA or (folder / "physfn").exists():
            continue
        lines = _text(proc / "driver/nvidia/gpus" / folder.name / "information").splitlines()
        about = {key.strip(): value.strip() for key, _, value in (n.partition(":") for n in lines)}
        minor = about.get("Device Minor", "")
        if minor.isdecimal():
            amounts = ("koordinator.sh/gpu-core", "koordinator.sh/gpu-memory-ratio")
            yield {
                "type": "gpu",
                "minor": int(minor),
                "id": about.get("GPU UUID", folder.name),
                "health": True,
                "resources": dict.fromkeys(amounts, "100"),
                **_place(folder, has_one_zone),
            }


def _rdma_cards(sysfs: Path, has_one_zone: bool) -> Iterator[Object]:
    folders = {entry.resolve(): entry.parent for entry in sysfs.glob("class/infiniband/*/device")}
    cards = [folder for folder in sorted(folders) if not (folder / "physfn").exists()]
    for minor, folder in enumerate(cards):
        states = [_text(path) for path in folders[folder].glob("ports/*/state")]
        links = sorted(folder.glob("virtfn*"), key=lambda link: int(link.name[6:]))
        functions = [
            {"minor": number, "busID": link.resolve().name} for number, link in enumerate(links)
        ]
        yield {
            "type": "rdma",
            "minor": minor,
            "id": folder.name,
            "health": any("ACTIVE" in state for state in states),
            "resources": {"koordinator.sh/rdma": "100"},
            **_place(folder, has_one_zone),
            **({"vfGroups": [{"vfs": functions}]} if functions else {}),
        }


def _place(folder: Path, has_one_zone: bool) -> Object:
    """Return the topology of a card, nothing if its zone is not known."""
    zone = "0" if has_one_zone else _text(folder / "numa_node")
    if not zone.isdecimal():
        return {}
    path = folder.resolve()
    above = [
        part.name for part in (path, *path.parents) if part.parent.name.startswith(("pci0", "pci1"))
    ]
    switch = above[0] if above else path.name
    place = {"socketID": -1, "nodeID": int(zone), "pcieID": switch, "busID": path.name}
    return {"topology": place}


def _folders(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
