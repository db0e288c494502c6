"""The files of a simulated node: a /sys tree, the kubelet's configuration, its socket and its
state.

Few files are written (only those that an exporter reads), so that hundreds of nodes cost tenths of
a second. This module does not know the kubelet model beyond its configuration values.
"""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from services.simulator.cluster import SimulatedNode
from shared.domain.report import POD_LEVEL_GATE
from shared.kubelet.config import ZoneConfig
from shared.kubelet.cpuset import cpus_of, format_cpus
from shared.kubelet.topology import Cpu

HOST_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
MAX_SOCKET_BYTES = 107
_BOOT_NAMESPACE = uuid.UUID("8a5cbd6e-3f5a-4f0e-9d5c-6a2f5f6f7a01")


class NodeFiles(msgspec.Struct, frozen=True):
    """The paths of one node's files."""

    name: str
    sysfs: Path
    kubelet_dir: Path
    socket: Path
    agent_dir: Path | None = None

    def for_exporter(self) -> dict[str, str]:
        """The entry of an exporter's nodes file."""
        paths = {
            "socket": str(self.socket),
            "sysfs": str(self.sysfs),
            "kubelet_dir": str(self.kubelet_dir),
            **({"agent_dir": str(self.agent_dir)} if self.agent_dir else {}),
        }
        return {"name": self.name, **paths}


def places(folder: Path, sockets: Path, nodes: tuple[SimulatedNode, ...]) -> tuple[NodeFiles, ...]:
    """Return the paths of all nodes under `folder`. Sockets are numbered, because their paths must
    be short.
    """
    return tuple(
        NodeFiles(
            node.name,
            folder / node.name / "sys",
            folder / node.name / "kubelet",
            sockets / f"{number}.sock",
            folder / node.name / "agent" if node.owned_policy else None,
        )
        for number, node in enumerate(nodes)
    )


def socket_folder(folder: Path) -> Path:
    """Return `folder`/sockets if paths in it are short enough for the kernel, else a new temporary
    folder.
    """
    wanted = folder / "sockets"
    if len(bytes(wanted / "99999.sock")) <= MAX_SOCKET_BYTES:
        wanted.mkdir(mode=0o750, parents=True, exist_ok=True)
        return wanted
    return Path(tempfile.mkdtemp(prefix="topolog-"))


def write(node: SimulatedNode, files: NodeFiles) -> None:
    """Write the node's /sys tree and kubelet configuration. Existing files are replaced."""
    base = files.sysfs / "devices" / "system" / "node"
    for zone in node.machine.zones:
        _write_zone(base / f"node{zone.id}", node, zone)
    ids = format_cpus(cpus_of(zone.id for zone in node.machine.zones))
    (base / "online").write_text(ids + "\n")
    _write_cpus(files.sysfs / "devices" / "system" / "cpu", node.machine.cpus)
    (files.sysfs / "boot_id").write_text(boot_id(node.name, str(files.sysfs)) + "\n")
    files.kubelet_dir.mkdir(parents=True, exist_ok=True)
    (files.kubelet_dir / "config.yaml").write_bytes(
        msgspec.json.format(msgspec.json.encode(configuration(node)))
    )


def boot_id(name: str, place: str) -> str:
    """Return a boot id for the node. It changes when the host reboots, because the host's boot
    clock then starts again.
    """
    try:
        host = HOST_BOOT_ID.read_text().strip()
    except OSError:
        host = "host"
    return str(uuid.uuid5(_BOOT_NAMESPACE, f"{host}/{place}/{name}"))


def configuration(node: SimulatedNode) -> dict[str, Any]:
    """Return the KubeletConfiguration that a real kubelet would have (JSON, which is YAML)."""
    kubelet = node.kubelet
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "cpuManagerPolicy": kubelet.cpu_policy,
        "cpuManagerPolicyOptions": kubelet.cpu_options,
        "featureGates": {POD_LEVEL_GATE: kubelet.pod_level_managers},
        "memoryManagerPolicy": kubelet.memory_policy,
        "topologyManagerPolicy": kubelet.topology_policy,
        "topologyManagerScope": kubelet.topology_scope,
        "topologyManagerPolicyOptions": kubelet.topology_options,
        "reservedSystemCPUs": kubelet.reserved_cpus,
        "reservedMemory": [
            {
                "numaNode": zone,
                "limits": {name: str(amount) for name, amount in sorted(limits.items())},
            }
            for zone, limits in sorted(kubelet.reserved_memory.items())
        ],
        "maxPods": node.max_pods,
        **_reservations(node),
    }


def _reservations(node: SimulatedNode) -> dict[str, Any]:
    if not node.system_memory:
        return {}
    memory = str(node.system_memory * len(node.machine.zones))
    return {"systemReserved": {"memory": memory}, "evictionHard": {"memory.available": "0%"}}


def _write_zone(folder: Path, node: SimulatedNode, zone: ZoneConfig) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    cpus = cpus_of(cpu.id for cpu in node.machine.cpus if cpu.numa == zone.id)
    (folder / "cpulist").write_text(format_cpus(cpus) + "\n")
    (folder / "distance").write_text(" ".join(map(str, zone.distances)) + "\n")
    (folder / "meminfo").write_text(
        f"Node {zone.id} MemTotal: {zone.memory_bytes // 1024:>14} kB\n"
    )
    for size, pages in zone.hugepages.items():
        pool = folder / "hugepages" / f"hugepages-{size // 1024}kB"
        pool.mkdir(parents=True, exist_ok=True)
        (pool / "nr_hugepages").write_text(f"{pages}\n")


def _write_cpus(base: Path, cpus: tuple[Cpu, ...]) -> None:
    """Write siblings only for the lowest CPU of each group, which is the one an exporter reads: a
    file for every CPU would cost seconds.
    """
    for core in _groups((cpu.socket, cpu.core, cpu) for cpu in cpus).values():
        _write_text(
            base / f"cpu{min(core)}" / "topology" / "thread_siblings_list",
            format_cpus(cpus_of(core)),
        )
    for (socket, _), members in _groups((cpu.socket, 0, cpu) for cpu in cpus).items():
        topology = base / f"cpu{min(members)}" / "topology"
        _write_text(topology / "physical_package_id", str(socket))
        _write_text(topology / "core_siblings_list", format_cpus(cpus_of(members)))
    for (cache, _), members in _groups((cpu.uncore, 0, cpu) for cpu in cpus).items():
        last_level = base / f"cpu{min(members)}" / "cache" / "index3"
        _write_text(last_level / "level", "3")
        _write_text(last_level / "id", str(cache))
        _write_text(last_level / "shared_cpu_list", format_cpus(cpus_of(members)))


def _groups(keyed: Iterable[tuple[int, int, Cpu]]) -> dict[tuple[int, int], list[int]]:
    members: dict[tuple[int, int], list[int]] = {}
    for first, second, cpu in keyed:
        members.setdefault((first, second), []).append(cpu.id)
    return members


def _write_text(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")
