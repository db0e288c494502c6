"""The CPU Manager as configured: policy, options, the reserved set, and how options choose CPUs.

Source: kubelet 1.36, cm/cpumanager/policy_static.go. This module does not know pods, hints or
holdings.
"""

from __future__ import annotations

import msgspec

from shared.kubelet.cpu_options import CpuOptions, check_machine, parse_cpu_options
from shared.kubelet.cpu_spread import take_spread
from shared.kubelet.cpu_take import take_packed
from shared.kubelet.cpuset import format_cpus
from shared.kubelet.options import ConfigError
from shared.kubelet.topology import CpuTopology
from shared.kubelet.versions import DEFAULT, KubeletRules

NONE, STATIC = "none", "static"


class CpuManager(msgspec.Struct, frozen=True):
    """A configured CPU Manager. Sets of CPUs are integers. `reserved_cores` is `reserved` with all
    thread siblings. `rules` are those of the kubelet's version.
    """

    policy: str
    topology: CpuTopology
    options: CpuOptions = CpuOptions()
    reserved: int = 0
    reserved_cores: int = 0
    rules: KubeletRules = DEFAULT


def configure(
    topology: CpuTopology,
    policy: str,
    options: dict[str, str],
    reserved_count: int,
    reserved: int,
    topology_policy: str,
    *,
    rules: KubeletRules = DEFAULT,
    alpha: bool = False,
    beta: bool = True,
) -> CpuManager | ConfigError:
    """Return a manager, or the error text with which the kubelet would not start.

    `reserved` is the explicit set of system CPUs (0: chosen by `reserved_count`). `alpha` and
    `beta` are the gates of the options of these levels.
    """
    if policy == NONE:
        given = " ".join(f"{name}:{value}" for name, value in sorted(options.items()))
        refused = ConfigError(f"None policy: received unsupported options=map[{given}]")
        return refused if options else CpuManager(NONE, topology)
    if policy != STATIC:
        return ConfigError(f'unknown policy: "{policy}"')
    parsed = parse_cpu_options(options, rules.cpu_options, alpha=alpha, beta=beta)
    if isinstance(parsed, ConfigError):
        return parsed
    clash = check_machine(parsed, topology, topology_policy)
    return clash or _with_reservation(
        CpuManager(STATIC, topology, parsed, rules=rules), reserved_count, reserved
    )


def _with_reservation(manager: CpuManager, count: int, explicit: int) -> CpuManager | ConfigError:
    chosen = explicit or take(manager, manager.topology.every, count)
    reserved = 0 if isinstance(chosen, str) else chosen
    if reserved.bit_count() != count:
        text = f"(size of {format_cpus(reserved)} did not equal {count})"
        return ConfigError(f"[cpumanager] unable to reserve the required amount of CPUs {text}")
    unknown = reserved & ~manager.topology.every
    if unknown:
        text = f"unknown CPU ID: {(unknown & -unknown).bit_length() - 1}"
        prefix = "[cpumanager] unable to build the reserved physical CPUs from the reserved set"
        return ConfigError(f"{prefix}: {text}")
    cores = sum(cpus for _, cpus in manager.topology.cores if cpus & reserved)
    return msgspec.structs.replace(manager, reserved=reserved, reserved_cores=cores)


def take(manager: CpuManager, cpus: int, count: int) -> int | str:
    """Return `count` of `cpus` as the options require, regardless of affinity, or the kubelet's
    error text.
    """
    options = manager.options
    if options.across_numa:
        group = manager.topology.cpus_per_core if options.full_pcpus_only else 1
        return take_spread(manager.topology, cpus, count, group, spread_cores=options.across_cores)
    return take_packed(
        manager.topology,
        cpus,
        count,
        spread_cores=options.across_cores,
        align_uncore=options.align_uncore,
        rounds_up=manager.rules.uncore_rounds_up,
    )
