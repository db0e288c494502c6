"""Describe a node as a machine file, from its /sys tree and its KubeletConfiguration.

Pure over the tree's two functions. Devices are not in /sys: plugins register them with the kubelet
only. Must not know the machine file beyond its field names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from services.exporter.sysfs import Machine, NumaNode, Tree
from services.exporter.sysfs_cpus import last_level_cache, read_cores, read_sockets
from shared.kubelet.cpuset import cpus_of, format_cpus

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
    """Return the document of a machine file. Raises SysfsError for a tree that no kernel shows.

    Cores and sockets are the kubelet's (cAdvisor's), as in the exporter's reports.
    """
    cpus = sorted(machine.zone_of_cpu)
    sockets = read_sockets(tree, cpus) or dict.fromkeys(cpus, 0)
    cores = read_cores(tree, machine.zone_of_cpu, sockets) or {cpu: cpu for cpu in cpus}
    document: dict[str, Any] = {"zones": [_zone(node, machine) for node in machine.nodes]}
    document["cores"] = _groups(cpus, [(cores[cpu],) for cpu in cpus])
    document["sockets"] = _groups(cpus, [(sockets[cpu],) for cpu in cpus])
    caches = _groups(cpus, [_sharers(tree, cpu) for cpu in cpus])
    if caches:
        document["uncore_caches"] = caches
    document["kubelet"] = {
        name: configuration[name] for name in KUBELET_FIELDS if configuration.get(name) is not None
    }
    document["devices"] = {}
    return document


def without_memory(machine: Machine) -> list[int]:
    """Return the zones with unknown memory: a kernel without NUMA, or a copied tree."""
    return [node.id for node in machine.nodes if node.memory_bytes is None]


def _zone(node: NumaNode, machine: Machine) -> dict[str, Any]:
    zone: dict[str, Any] = {"id": node.id, "cpus": format_cpus(cpus_of(node.cpus))}
    if node.memory_bytes is not None:
        zone["memory"] = str(node.memory_bytes)
    pools = {name.removeprefix("hugepages-"): size for name, size in node.hugepages.items()}
    if pools:
        zone["hugepages"] = {name: size // _page_bytes(name) for name, size in pools.items()}
    zone["distances"] = [node.distances.get(target.id, 10) for target in machine.nodes]
    return zone


def _page_bytes(name: str) -> int:
    units = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}
    return int(name[:-2]) * units[name[-2:]] if name[-2:] in units else int(name)


def _sharers(tree: Tree, cpu: int) -> tuple[int, ...]:
    """Return the CPUs that share the level 3 cache, empty if the tree shows none."""
    cache = last_level_cache(tree, cpu)
    return cache[1] if cache is not None else ()


def _groups(cpus: list[int], keys: list[tuple[int, ...]]) -> list[str]:
    """Group CPUs by key, as Linux lists in order of their lowest CPU. CPUs with an empty key are
    left out.
    """
    members: dict[tuple[int, ...], list[int]] = {}
    for cpu, key in zip(cpus, keys, strict=True):
        if key:
            members.setdefault(key, []).append(cpu)
    return [format_cpus(cpus_of(group)) for group in members.values()]
