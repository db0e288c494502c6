"""Resource names and their units: which class a name belongs to, and in what integer it is counted.

Amounts everywhere in Topolog are exact integers: `cpu` in millicpu, everything else in whole base
units (bytes for memory and hugepages, counts for devices). This module must not know pods, zones or
nodes.
"""

from __future__ import annotations

CPU = "cpu"
MEMORY = "memory"
HUGEPAGES_PREFIX = "hugepages-"
EPHEMERAL_STORAGE = "ephemeral-storage"
PODS = "pods"

Amounts = dict[str, int]
"""Resource name -> amount; millicpu for `cpu`, bytes or counts for the rest. Absent means zero."""


def is_hugepages(name: str) -> bool:
    """True for `hugepages-2Mi` and its like."""
    return name.startswith(HUGEPAGES_PREFIX)


def is_native(name: str) -> bool:
    """Kubernetes' own names: without a domain, or inside `kubernetes.io/`
    (helper.IsNativeResource).
    """
    return "/" not in name or "kubernetes.io/" in name


def is_device(name: str) -> bool:
    """Extended and device-plugin resources: everything that is not native."""
    return not is_native(name)


def is_memory(name: str) -> bool:
    """The resources of the kubelet's Memory Manager: memory and hugepages."""
    return name == MEMORY or is_hugepages(name)


def memory_of(amounts: Amounts) -> Amounts:
    """What of these amounts is the Memory Manager's."""
    return {name: amount for name, amount in amounts.items() if is_memory(name)}


def is_numa_affine(name: str) -> bool:
    """Resources whose per-zone accounting the kubelet's CPU and Memory Managers own."""
    return name in (CPU, MEMORY) or is_hugepages(name)


def add(left: Amounts, right: Amounts) -> Amounts:
    """The sum by resource; names stay sorted so that folds have one order."""
    return {name: left.get(name, 0) + right.get(name, 0) for name in sorted({*left, *right})}


def largest(left: Amounts, right: Amounts) -> Amounts:
    """The larger amount by resource."""
    return {name: max(left.get(name, 0), right.get(name, 0)) for name in sorted({*left, *right})}
