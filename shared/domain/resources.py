"""Resource names and their units.

Amounts are exact integers everywhere in Topolog: `cpu` in millicpu, everything else in whole base
units (bytes for memory and hugepages, counts for devices). This module does not know pods, zones or
nodes.
"""

from __future__ import annotations

from functools import lru_cache

CPU = "cpu"
MEMORY = "memory"
HUGEPAGES_PREFIX = "hugepages-"
EPHEMERAL_STORAGE = "ephemeral-storage"
PODS = "pods"

# Resource name -> amount: millicpu for `cpu`, bytes or counts for the rest. A missing name means
# zero.
Amounts = dict[str, int]


def is_hugepages(name: str) -> bool:
    """Return whether the name is like `hugepages-2Mi`."""
    return name.startswith(HUGEPAGES_PREFIX)


def is_native(name: str) -> bool:
    """Return whether the name is Kubernetes' own: no domain, or inside `kubernetes.io/`
    (helper.IsNativeResource).
    """
    return "/" not in name or "kubernetes.io/" in name


# Cached, because every decision asks it for the same few names many times.
@lru_cache(maxsize=4096)
def is_device(name: str) -> bool:
    """Return whether the name is an extended or device plugin resource, that is, not native."""
    return not is_native(name)


@lru_cache(maxsize=4096)
def is_memory(name: str) -> bool:
    """Return whether the kubelet's Memory Manager handles the resource: memory and hugepages."""
    return name == MEMORY or is_hugepages(name)


def memory_of(amounts: Amounts) -> Amounts:
    """Return the amounts that the Memory Manager handles."""
    return {name: amount for name, amount in amounts.items() if is_memory(name)}


def is_numa_affine(name: str) -> bool:
    """Return whether the CPU Manager or the Memory Manager accounts for the resource by zone."""
    return name in (CPU, MEMORY) or is_hugepages(name)


def add(left: Amounts, right: Amounts) -> Amounts:
    """Return the sum by resource. Names are sorted so that folds have one order."""
    return {name: left.get(name, 0) + right.get(name, 0) for name in sorted({*left, *right})}


def largest(left: Amounts, right: Amounts) -> Amounts:
    """Return the larger amount by resource."""
    return {name: max(left.get(name, 0), right.get(name, 0)) for name in sorted({*left, *right})}
