"""Options of the static CPU policy: names, parsing, and the pairs that exclude each other.

Source: kubelet 1.36, cm/cpumanager/policy_options.go. This module does not know how an option
changes an allocation.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from shared.domain.policies import SINGLE_NUMA_NODE
from shared.kubelet.options import ConfigError, bad_value, not_available, parse_bool
from shared.kubelet.topology import CpuTopology
from shared.kubelet.versions import DEFAULT, Level

FULL_PCPUS_ONLY = "full-pcpus-only"
ACROSS_NUMA = "distribute-cpus-across-numa"
ACROSS_CORES = "distribute-cpus-across-cores"
ALIGN_BY_SOCKET = "align-by-socket"
STRICT_RESERVATION = "strict-cpu-reservation"
ALIGN_UNCORE = "prefer-align-cpus-by-uncorecache"

_FIELDS = {
    ALIGN_BY_SOCKET: "align_by_socket",
    ACROSS_CORES: "across_cores",
    ACROSS_NUMA: "across_numa",
    FULL_PCPUS_ONLY: "full_pcpus_only",
    ALIGN_UNCORE: "align_uncore",
    STRICT_RESERVATION: "strict_reservation",
}
_CONFLICTS = (
    (FULL_PCPUS_ONLY, ACROSS_CORES),
    (ACROSS_NUMA, ACROSS_CORES),
    (ALIGN_UNCORE, ACROSS_CORES),
    (ALIGN_UNCORE, ACROSS_NUMA),
)


class CpuOptions(msgspec.Struct, frozen=True):
    """The static policy's options, all off by default."""

    full_pcpus_only: bool = False
    across_numa: bool = False
    across_cores: bool = False
    align_by_socket: bool = False
    strict_reservation: bool = False
    align_uncore: bool = False


def parse_cpu_options(
    options: dict[str, str],
    levels: Mapping[str, Level] = DEFAULT.cpu_options,
    *,
    alpha: bool = False,
    beta: bool = True,
) -> CpuOptions | ConfigError:
    """Parse options by name. `levels` are the options of the kubelet's version, `alpha` and `beta`
    the gates of their levels.
    """
    flags: dict[str, bool] = {}
    for name, text in sorted(options.items()):
        unavailable = not_available("CPU", name, levels, alpha=alpha, beta=beta)
        if unavailable is not None:
            return unavailable
        flag = parse_bool(text)
        if isinstance(flag, ConfigError):
            return bad_value(name, flag)
        flags[name] = flag
    return _without_conflict(flags)


def _without_conflict(flags: dict[str, bool]) -> CpuOptions | ConfigError:
    for option, excluded in _CONFLICTS:
        if flags.get(option) and flags.get(excluded):
            return ConfigError(
                f"static policy options {option} and {excluded} can not be used at the same time"
            )
    return CpuOptions(**{_FIELDS[name]: flag for name, flag in flags.items()})


def check_machine(
    options: CpuOptions, topology: CpuTopology, topology_policy: str
) -> ConfigError | None:
    """Check align-by-socket: not with single-numa-node, and no more sockets than NUMA nodes."""
    if not options.align_by_socket:
        return None
    if topology_policy == SINGLE_NUMA_NODE:
        text = (
            f"Topolgy manager {topology_policy} policy is incompatible with CPUManager "
            f"{ALIGN_BY_SOCKET} policy option"
        )
        return ConfigError(text)
    if len(topology.sockets) > len(topology.numas):
        text = (
            "Align by socket is not compatible with hardware where number of sockets are "
            "more than number of NUMA"
        )
        return ConfigError(text)
    return None
