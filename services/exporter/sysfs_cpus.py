"""How the CPUs of a machine nest, as /sys tells it: sockets, cores, last-level caches.

One look at each group, not at each CPU: the kernel lists a CPU's siblings beside it. As cAdvisor
shows the machine to a kubelet, a level 3 cache that all CPUs of a NUMA node share is none of its
own: such CPUs go by their socket. Pure over the tree's two functions. Source: Linux
Documentation/ABI/stable/sysfs-devices-system-cpu; cAdvisor utils/sysinfo.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from services.exporter.sysfs import CPUS, Tree, parse_ids
from shared.domain.cpus import CpuLayout, format_runs
from shared.kubelet.cpuset import cpus_of, format_cpus

LAST_LEVEL = "3"
Group = tuple[int, tuple[int, ...]]
"""(number, the CPUs in it)."""


def read_layout(tree: Tree, zone_of_cpu: Mapping[int, int]) -> CpuLayout:
    """The layout of these CPUs; a column that /sys does not tell for every CPU is left empty.
    Raises SysfsError.
    """
    cpus = sorted(zone_of_cpu)
    sockets = _column(cpus, partial(_socket, tree))
    caches = None if sockets is None else _caches(tree, cpus, zone_of_cpu, sockets)
    return CpuLayout(
        format_cpus(cpus_of(cpus)),
        format_runs([zone_of_cpu[cpu] for cpu in cpus]),
        _runs(cpus, sockets),
        _runs(cpus, _column(cpus, partial(_core, tree))),
        _runs(cpus, caches),
    )


def _runs(cpus: Iterable[int], column: Mapping[int, int] | None) -> str:
    return "" if column is None else format_runs([column[cpu] for cpu in cpus])


def _column(cpus: Iterable[int], group_of: Callable[[int], Group | None]) -> dict[int, int] | None:
    """CPU -> number of its group, or None when one CPU's group is not told."""
    found: dict[int, int] = {}
    for cpu in cpus:
        if cpu in found:
            continue
        group = group_of(cpu)
        if group is None:
            return None
        found.update(dict.fromkeys(group[1], group[0]))
        found[cpu] = group[0]
    return found


def _socket(tree: Tree, cpu: int) -> Group | None:
    """-1 is what some virtual machines say for one socket."""
    base = f"{CPUS}/cpu{cpu}/topology"
    number = (tree.text(f"{base}/physical_package_id") or "").strip()
    if not number.removeprefix("-").isdigit():
        return None
    where = f"{base}/core_siblings_list"
    return max(0, int(number)), parse_ids(tree.text(where) or str(cpu), where)


def _core(tree: Tree, cpu: int) -> Group | None:
    where = f"{CPUS}/cpu{cpu}/topology/thread_siblings_list"
    text = tree.text(where)
    siblings = () if text is None else parse_ids(text, where)
    return (min(siblings), siblings) if siblings else None


def _caches(
    tree: Tree, cpus: Iterable[int], zone_of_cpu: Mapping[int, int], sockets: Mapping[int, int]
) -> dict[int, int]:
    sizes: dict[int, int] = {}
    for zone in zone_of_cpu.values():
        sizes[zone] = sizes.get(zone, 0) + 1
    found: dict[int, int] = {}
    for cpu in cpus:
        if cpu not in found:
            number, shared = _last_level_cache(tree, cpu) or (0, ())
            own = shared and len(shared) != sizes[zone_of_cpu[cpu]]
            found.update(
                dict.fromkeys(shared, number)
                if own
                else {each: sockets[each] for each in shared if each in sockets}
            )
            found.setdefault(cpu, sockets[cpu])
    return found


def _last_level_cache(tree: Tree, cpu: int) -> Group | None:
    for index in tree.names(f"{CPUS}/cpu{cpu}/cache"):
        base = f"{CPUS}/cpu{cpu}/cache/{index}"
        if (tree.text(f"{base}/level") or "").strip() == LAST_LEVEL:
            shared = parse_ids(tree.text(f"{base}/shared_cpu_list") or "", base) or (cpu,)
            number = (tree.text(f"{base}/id") or "").strip()
            return (int(number) if number.isdigit() else min(shared)), shared
    return None
