"""The layout of a machine's CPUs by /sys: sockets, cores, last-level caches.

The kubelet gets its layout from cAdvisor, so this module follows cAdvisor:

1. A core is the set of CPUs of one NUMA node with the same core_id and physical_package_id. The
   kernel's thread_siblings_list is not used: core_id restarts in each cluster on some ARM and
   RISC-V machines, and there the kubelet sees fewer and larger cores than the kernel.
2. A level 3 cache that all CPUs of a NUMA node share is ignored; such CPUs go by their socket.

A column that /sys does not show for every CPU stays empty. Pure over the tree's two functions.
Sources: cAdvisor utils/sysinfo (getCoresInfo, addCacheInfo); Linux
Documentation/ABI/stable/sysfs-devices-system-cpu.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from services.exporter.sysfs import CPUS, Tree, package_of, parse_ids
from shared.domain.cpus import CpuLayout, format_runs
from shared.kubelet.cpuset import cpus_of, format_cpus

LAST_LEVEL = "3"
# CPU -> number of its socket, core or cache.
Column = dict[int, int]


def read_layout(tree: Tree, zone_of_cpu: Mapping[int, int]) -> CpuLayout:
    """Return the layout of these CPUs. Raises SysfsError."""
    cpus = sorted(zone_of_cpu)
    sockets = read_sockets(tree, cpus)
    cores = read_cores(tree, zone_of_cpu, sockets)
    caches = None if sockets is None else _caches(tree, cpus, zone_of_cpu, sockets)
    return CpuLayout(
        format_cpus(cpus_of(cpus)),
        format_runs([zone_of_cpu[cpu] for cpu in cpus]),
        _runs(cpus, sockets),
        _runs(cpus, cores),
        _runs(cpus, caches),
    )


def read_sockets(tree: Tree, cpus: Iterable[int]) -> Column | None:
    """Return CPU -> physical package, or None if one CPU's package is unknown.

    Simulated trees have the files of one CPU of each socket, with the list of its siblings.
    """
    sockets: Column = {}
    by_sibling: Column = {}
    for cpu in cpus:
        package = package_of(tree, cpu)
        if package is not None and cpu not in by_sibling:
            where = f"{CPUS}/cpu{cpu}/topology/core_siblings_list"
            for sibling in parse_ids(tree.text(where) or "", where):
                by_sibling.setdefault(sibling, package)
        if package is None and cpu not in by_sibling:
            return None
        sockets[cpu] = by_sibling[cpu] if package is None else package
    return sockets


def read_cores(tree: Tree, zone_of_cpu: Mapping[int, int], sockets: Column | None) -> Column | None:
    """Return CPU -> lowest CPU of its core, or None if unknown.

    A tree without any core_id (old recordings) falls back to the kernel's thread siblings.
    """
    lowest: dict[tuple[int, int, int], int] = {}
    cores: Column = {}
    for cpu in sorted(zone_of_cpu):
        text = (tree.text(f"{CPUS}/cpu{cpu}/topology/core_id") or "").strip()
        if not text.removeprefix("-").isdigit() or len(text) > 9 or sockets is None:
            return _siblings(tree, zone_of_cpu) if not cores else None
        key = zone_of_cpu[cpu], sockets[cpu], int(text)
        cores[cpu] = lowest.setdefault(key, cpu)
    return cores


def _siblings(tree: Tree, zone_of_cpu: Mapping[int, int]) -> Column | None:
    cores: Column = {}
    for cpu in sorted(zone_of_cpu):
        if cpu in cores:
            continue
        where = f"{CPUS}/cpu{cpu}/topology/thread_siblings_list"
        siblings = parse_ids(tree.text(where) or "", where)
        if not siblings:
            return None
        cores.update(dict.fromkeys((*siblings, cpu), min(siblings)))
    return cores


def _runs(cpus: Iterable[int], column: Mapping[int, int] | None) -> str:
    return "" if column is None else format_runs([column[cpu] for cpu in cpus])


def _caches(
    tree: Tree, cpus: Iterable[int], zone_of_cpu: Mapping[int, int], sockets: Column
) -> Column:
    zone_sizes = Counter(zone_of_cpu.values())
    caches: Column = {}
    for cpu in cpus:
        if cpu in caches:
            continue
        number, shared = last_level_cache(tree, cpu) or (0, ())
        for sharer in shared:
            if len(shared) != zone_sizes[zone_of_cpu[cpu]]:
                caches[sharer] = number
            elif sharer in sockets:
                caches[sharer] = sockets[sharer]
        caches.setdefault(cpu, sockets[cpu])
    return caches


def last_level_cache(tree: Tree, cpu: int) -> tuple[int, tuple[int, ...]] | None:
    """Return the number of the CPU's level 3 cache and the CPUs that share it."""
    for index in tree.names(f"{CPUS}/cpu{cpu}/cache"):
        base = f"{CPUS}/cpu{cpu}/cache/{index}"
        if (tree.text(f"{base}/level") or "").strip() == LAST_LEVEL:
            shared = parse_ids(tree.text(f"{base}/shared_cpu_list") or "", base) or (cpu,)
            number = (tree.text(f"{base}/id") or "").strip()
            return (int(number) if number.isdigit() else min(shared)), shared
    return None
