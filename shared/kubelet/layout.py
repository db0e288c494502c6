"""CPUs as a report tells them, and as the kubelet's model wants them: both ways.

Must not know reports beyond their column of CPUs, nor what is done with a machine.
"""

from __future__ import annotations

from collections.abc import Iterable

from shared.domain.cpus import CpuLayout, format_runs, parse_runs
from shared.kubelet.cpuset import cpus_of, each_cpu, format_cpus, parse_cpus
from shared.kubelet.topology import Cpu


def layout_of(cpus: Iterable[Cpu]) -> CpuLayout:
    """The layout of a machine's CPUs; cores are numbered by their lowest CPU."""
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
    """The CPUs of a layout; None where it does not tell all, or is none (columns of different
    lengths, texts that are no columns)."""
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
    """As the kubelet counts them: CPUs divided by cores; 0 where cores are not known."""
    try:
        cores = parse_runs(layout.cores)
    except ValueError:
        return 0
    return len(cores) // len(set(cores)) if cores else 0
