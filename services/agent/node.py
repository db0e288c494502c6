"""Reads the node: its CPUs and memory by zone, cgroups, and what else sets CPUs there."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from services.agent import cgroups
from services.agent.core import Cpuset, Machine, State
from services.agent.settings import AgentSettings
from shared.kubelet.cpuset import each_cpu, parse_cpus

KOORDLET = "koordlet"
MAX_BYTES = 1 << 20


class _CpuState(msgspec.Struct):
    policy: str = msgspec.field(default="", name="policyName")


class Node:
    """The folders of one node, by the settings."""

    def __init__(self, settings: AgentSettings) -> None:
        self._settings = settings
        self._sysfs = Path(settings.sysfs) / "devices/system"
        self._cgroups = Path(settings.cgroups)

    def machine(self) -> Machine:
        """Return the node's zones. Raises ValueError if /sys does not show them."""
        online = parse_cpus(_text(self._sysfs / "cpu/online") or "")
        nodes = self._sysfs / "node"
        listed = parse_cpus(_text(nodes / "online") or "")
        if not online or not listed:
            raise ValueError(f"{self._sysfs}: no CPUs or no NUMA nodes; set TOPOLOG_SYSFS")
        zones = {
            zone: parse_cpus(_text(nodes / f"node{zone}/cpulist") or "") & online
            for zone in each_cpu(listed)
        }
        memory = _text(nodes / "has_memory")
        reserved = parse_cpus(self._settings.reserved_cpus)
        return Machine(zones, listed if memory is None else parse_cpus(memory), reserved)

    def measured(self, state: State) -> dict[str, Cpuset]:
        """Return what each live container has, by id; those without a readable cgroup are absent.

        Containers in one cgroup have the same set, for example in a sandboxed runtime.
        """
        made = {}
        for container in state.containers.values():
            cpuset = cgroups.measure(self._cgroup_file, container.cgroup)
            if cpuset is not None and cpuset.cpus:
                made[container.id] = cpuset
        return made

    def is_gone(self, cgroup: str) -> bool:
        """Return whether this cgroup is missing although the tree of cgroups can be read."""
        tree = self._cgroups / cgroups.tree(self._cgroup_file)
        return tree.is_dir() and not (tree / cgroups.folder(cgroup)).is_dir()

    def other_enforcer(self, scans_processes: bool = True) -> str:
        """Return what else sets CPUs on this node, with the remedy; "" if nothing does."""
        state = _text(Path(self._settings.kubelet_dir) / "cpu_manager_state")
        if state is not None and _policy(state) == "static":
            return "the kubelet's CPU Manager has the policy static; set cpuManagerPolicy to none"
        processes = Path(self._settings.host_proc).glob("[0-9]*/comm") if scans_processes else ()
        for comm in processes:
            if (_text(comm) or "").strip() == KOORDLET:
                return "koordlet runs on this node and sets CPUs itself; keep one of the two"
        return ""

    def _cgroup_file(self, path: str) -> str | None:
        return _text(self._cgroups / path)


def gpu_files(host_proc: str, minors: Iterable[int]) -> list[tuple[str, int, int]]:
    """Return path, major and minor number of the device files of NVIDIA GPUs: those of these minors
    and those that every container with GPUs needs; [] without their driver.
    """
    majors = dict[str, int]()
    for line in (_text(Path(host_proc) / "devices") or "").splitlines():
        number, _, name = line.strip().partition(" ")
        if number.isdecimal():
            majors.setdefault(name, int(number))
    frontend = majors.get("nvidia-frontend", majors.get("nvidia"))
    if frontend is None:
        return []
    files = [(f"/dev/nvidia{minor}", frontend, minor) for minor in minors]
    files.append(("/dev/nvidiactl", frontend, 255))
    if "nvidia-uvm" in majors:
        files += [("/dev/nvidia-uvm", majors["nvidia-uvm"], 0)]
        files += [("/dev/nvidia-uvm-tools", majors["nvidia-uvm"], 1)]
    return files


def _policy(text: str) -> str:
    try:
        return msgspec.json.decode(text, type=_CpuState).policy
    except msgspec.MsgspecError:
        return ""


def _text(path: Path) -> str | None:
    try:
        with path.open(encoding="ascii", errors="replace") as file:
            return file.read(MAX_BYTES)
    except OSError:
        return None
