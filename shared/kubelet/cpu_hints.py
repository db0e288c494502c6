"""Topology hints of the CPU Manager: the NUMA nodes that could give a container or pod its
exclusive CPUs.

Source: kubelet 1.36, cm/cpumanager/policy_static.go. This module does not know other managers or
the merge.
"""

from __future__ import annotations

from shared.domain.pod import Container, Pod
from shared.domain.resources import CPU
from shared.kubelet.cpu_policy import STATIC, CpuManager
from shared.kubelet.cpu_request import exclusive_cpus, pod_exclusive_cpus
from shared.kubelet.cpu_state import CpuState
from shared.kubelet.cpuset import union
from shared.kubelet.hint import Hint, Hints
from shared.kubelet.masks import enumerate_masks, mask_sizes, mask_sums, nodes_of
from shared.kubelet.topology import CpuTopology


def container_hints(manager: CpuManager, state: CpuState, pod: Pod, container: Container) -> Hints:
    """Hints of one container; None for the shared pool."""
    count = exclusive_cpus(pod, container) if manager.policy == STATIC else 0
    if not count:
        return None
    owned = state.of(pod.uid, container.name)
    if owned:
        return {CPU: hints(manager, owned, 0, count) if owned.bit_count() == count else []}
    return {CPU: hints(manager, state.available(manager), state.reusable(pod.uid), count)}


def pod_hints(manager: CpuManager, state: CpuState, pod: Pod) -> Hints:
    """Hints of a whole pod, for scope pod."""
    count = pod_exclusive_cpus(pod) if manager.policy == STATIC else 0
    if not count:
        return None
    owned = state.entries.get(pod.uid, {})
    counts = {container.name: exclusive_cpus(pod, container) for container in pod.containers}
    if any(cpus.bit_count() != counts.get(name, 0) for name, cpus in owned.items()):
        return {CPU: []}
    assigned = union(owned.values())
    if assigned.bit_count() == count:
        return {CPU: hints(manager, assigned, 0, count)}
    return {
        CPU: hints(manager, state.available(manager), state.reusable(pod.uid) | assigned, count)
    }


def hints(manager: CpuManager, available: int, reusable: int, count: int) -> list[Hint]:
    """Return a hint for each mask that has all reusable CPUs and enough available ones, in
    enumeration order.
    """
    topology, nodes = manager.topology, manager.topology.numa_nodes
    free = mask_sums(nodes, [(available & cpus).bit_count() for _, cpus in topology.numas])
    needed = sum(1 << numa for numa, cpus in topology.numas if reusable & cpus)
    short, least = count - reusable.bit_count(), _least_nodes(topology, count)
    sized = zip(enumerate_masks(nodes), free, mask_sizes(nodes), strict=True)
    if manager.options.align_by_socket:
        aligned = _sockets_wanted(topology, least)
        fitting = [
            (mask, size) for mask, cpus, size in sized if cpus >= short and not needed & ~mask
        ]
        return [
            Hint(mask, size == least or _sockets(topology, mask) == aligned)
            for mask, size in fitting
        ]
    return [
        Hint(mask, size == least)
        for mask, cpus, size in sized
        if cpus >= short and not needed & ~mask
    ]


def _least_nodes(topology: CpuTopology, count: int) -> int:
    """Return the smallest number of NUMA nodes with enough CPUs for the request, free or not."""
    cpu_count = 0
    for nodes, cpus in enumerate(
        sorted((cpus.bit_count() for _, cpus in topology.numas), reverse=True), 1
    ):
        cpu_count += cpus
        if cpu_count >= count:
            return nodes
    return len(topology.numas)


def _sockets_wanted(topology: CpuTopology, least_nodes: int) -> int:
    """Return how many sockets a socket-aligned hint touches; -1 if there are more sockets than NUMA
    nodes.
    """
    per_socket = len(topology.numas) // len(topology.sockets)
    return -(-least_nodes // per_socket) if per_socket else -1


def _sockets(topology: CpuTopology, mask: int) -> int:
    return len(
        {socket for numa in nodes_of(mask) for socket, _, _ in topology.sockets_in_numa[numa]}
    )
