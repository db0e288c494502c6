"""Converts the CPUs of a report to the kubelet model's CPUs, and back.

This module does not know the rest of a report.
"""

from __future__ import annotations

from collections.abc import Iterable

from shared.domain.cpus import CpuLayout, format_runs, parse_runs
from shared.kubelet.cpuset import cpus_of, each_cpu, format_cpus, parse_cpus
from shared.kubelet.topology import Cpu


def layout_of(cpus: Iterable[Cpu]) -> CpuLayout:
    """Return the layout of a machine's CPUs. Cores are numbered by their lowest CPU."""
    listed = sorted(cpus, key=lambda cpu: cpu.id)
    lowest: dict[tuple[int, int], int] = {}
    for cpu in listed:
        lowest.setdefault((cpu.socket, cpu.core), cpu.id)
    return CpuLayout(
        format_cpus(cpus_of(cpu.id for cpu in listed)),
        format_runs([cpu.numa for cpu in listed]),
        format_runs([cpu.socket for cpu in listed]),
        format_runs([lowest[cpu.socket, cpu.core] for cpu in listed]),
        format_runs([cpu.uncore for cpu in listed]),
    )


def cpus_in(layout: CpuLayout) -> tuple[Cpu, ...] | None:
    """Return the CPUs of a layout, or None if it is incomplete or malformed (columns of different
    lengths).
    """
    try:
        ids = tuple(each_cpu(parse_cpus(layout.ids)))
        columns = [
            parse_runs(text, len(ids))
            for text in (layout.cores, layout.sockets, layout.zones, layout.caches)
        ]
    except ValueError:
        return None
    if not ids or any(len(column) != len(ids) for column in columns):
        return None
    return tuple(Cpu(*row) for row in zip(ids, *columns, strict=True))


def threads_per_core(layout: CpuLayout) -> int:
    """Return CPUs divided by cores, as the kubelet counts; 0 if the cores are unknown."""
    try:
        cores = parse_runs(layout.cores)
    except ValueError:
        return 0
    return len(cores) // len(set(cores)) if cores else 0
