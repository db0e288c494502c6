"""Describe a node as a machine file, from its /sys tree and its KubeletConfiguration.

Pure over the tree's two functions. Devices are not in /sys: plugins register them with the kubelet
only. Must not know the machine file beyond its field names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from services.exporter.sysfs import Machine, NumaNode, Tree, parse_ids
from shared.kubelet.cpuset import cpus_of, format_cpus

CPU = "devices/system/cpu"
KUBELET_FIELDS = (
    "topologyManagerPolicy",
    "topologyManagerScope",
    "topologyManagerPolicyOptions",
    "cpuManagerPolicy",
    "cpuManagerPolicyOptions",
    "reservedSystemCPUs",
    "kubeReserved",
    "systemReserved",
    "memoryManagerPolicy",
    "reservedMemory",
    "evictionHard",
    "maxPods",
    "featureGates",
)


def describe(machine: Machine, tree: Tree, configuration: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document of a machine file. Raises SysfsError for a tree that no kernel shows."""
    cpus = sorted(cpu for node in machine.nodes for cpu in node.cpus)
    document: dict[str, Any] = {"zones": [_zone(node, machine) for node in machine.nodes]}
    document["cores"] = _groups(cpus, [_siblings(tree, cpu) for cpu in cpus])
    document["sockets"] = _groups(cpus, [_package(tree, cpu) for cpu in cpus])
    caches = _groups(cpus, [_last_level_cache(tree, cpu) for cpu in cpus])
    if caches:
        document["uncore_caches"] = caches
    document["kubelet"] = {
        name: configuration[name] for name in KUBELET_FIELDS if configuration.get(name)
    }
    document["devices"] = {}
    return document


def _zone(node: NumaNode, machine: Machine) -> dict[str, Any]:
    zone: dict[str, Any] = {
        "id": node.id,
        "cpus": format_cpus(cpus_of(node.cpus)),
        "memory": str(node.memory_bytes),
    }
    pools = {name.removeprefix("hugepages-"): size for name, size in node.hugepages.items()}
    if pools:
        zone["hugepages"] = {name: size // _page_bytes(name) for name, size in pools.items()}
    zone["distances"] = [node.distances.get(target.id, 10) for target in machine.nodes]
    return zone


def _page_bytes(name: str) -> int:
    units = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}
    return int(name[:-2]) * units[name[-2:]] if name[-2:] in units else int(name)


def _siblings(tree: Tree, cpu: int) -> tuple[int, ...]:
    path = f"{CPU}/cpu{cpu}/topology/thread_siblings_list"
    return parse_ids(tree.text(path) or str(cpu), path)


def _package(tree: Tree, cpu: int) -> tuple[int, ...]:
    """Return the socket as a key of one number. -1, as some virtual machines report, and a missing
    file mean socket 0.
    """
    text = (tree.text(f"{CPU}/cpu{cpu}/topology/physical_package_id") or "0").strip()
    return (int(text) if text.isdigit() else 0,)


def _last_level_cache(tree: Tree, cpu: int) -> tuple[int, ...]:
    """Return the CPUs that share the level 3 cache, empty if the tree shows none."""
    for index in tree.names(f"{CPU}/cpu{cpu}/cache"):
        base = f"{CPU}/cpu{cpu}/cache/{index}"
        if (tree.text(f"{base}/level") or "").strip() == "3":
            return parse_ids(tree.text(f"{base}/shared_cpu_list") or "", base)
    return ()


def _groups(cpus: list[int], keys: list[tuple[int, ...]]) -> list[str]:
    """Group CPUs by key, as Linux lists in order of their lowest CPU. CPUs with an empty key are
    left out.
    """
    members: dict[tuple[int, ...], list[int]] = {}
    for cpu, key in zip(cpus, keys, strict=True):
        if key:
            members.setdefault(key, []).append(cpu)
    return [format_cpus(cpus_of(group)) for group in members.values()]
