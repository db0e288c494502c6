"""The CPU Manager's state as a value: the shared pool, the exclusive CPUs, and whether a stored
state still fits.

Source: kubelet 1.36, cm/cpumanager/policy_static.go, validateState. This module does not know hints
or how CPUs are chosen.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from shared.kubelet.cpu_policy import NONE, CpuManager
from shared.kubelet.cpuset import format_cpus, union
from shared.kubelet.options import ConfigError


class CpuState(msgspec.Struct, frozen=True):
    """The shared pool, the exclusive CPUs by pod uid and container, and the CPUs that pod
    `reuse_uid` may take again.
    """

    shared: int
    entries: Mapping[str, Mapping[str, int]] = {}
    reuse_uid: str = ""
    reuse: int = 0

    def of(self, uid: str, container: str) -> int:
        """Return the exclusive CPUs of a container; the empty set if it has none."""
        return self.entries.get(uid, {}).get(container, 0)

    def available(self, manager: CpuManager) -> int:
        """Return the CPUs that may be allocated: the shared pool without the reserved CPUs."""
        return self.shared & ~manager.reserved

    def reusable(self, uid: str) -> int:
        """Return the CPUs that later containers of a pod may take again from its init
        containers.
        """
        return self.reuse if self.reuse_uid == uid else 0


def initial(manager: CpuManager) -> CpuState:
    """Return the state before any pod. Under policy none the pool is not kept and stays empty."""
    if manager.policy == NONE:
        return CpuState(0)
    strict = manager.reserved if manager.options.strict_reservation else 0
    return CpuState(manager.topology.every & ~strict)


def validate(manager: CpuManager, state: CpuState) -> ConfigError | None:
    """Return why a restarted kubelet would refuse this state, as read from its checkpoint; None if
    it starts.
    """
    if manager.policy == NONE or not (state.shared or state.entries):
        return None
    if not state.shared:
        return ConfigError("default cpuset cannot be empty")
    return _reserved_error(manager, state) or _overlap_error(state) or _known_error(manager, state)


def _reserved_error(manager: CpuManager, state: CpuState) -> ConfigError | None:
    inside = manager.reserved & state.shared
    if manager.options.strict_reservation:
        return (
            ConfigError(f"some of strictly reserved cpus: {_present(inside, state)}")
            if inside
            else None
        )
    return (
        ConfigError(f"not all reserved cpus: {_present(manager.reserved, state)}")
        if inside != manager.reserved
        else None
    )


def _present(cpus: int, state: CpuState) -> str:
    return f'"{format_cpus(cpus)}" are present in defaultCpuSet: "{format_cpus(state.shared)}"'


def _overlap_error(state: CpuState) -> ConfigError | None:
    for uid, containers in sorted(state.entries.items()):
        for name, cpus in sorted(containers.items()):
            if cpus & state.shared:
                where = f'pod: {uid}, container: {name} cpuset: "{format_cpus(cpus)}"'
                return ConfigError(
                    f'{where} overlaps with default cpuset "{format_cpus(state.shared)}"'
                )
    return None


def _known_error(manager: CpuManager, state: CpuState) -> ConfigError | None:
    expected, topology_cpus = initial(manager).shared, state.shared
    for containers in state.entries.values():
        topology_cpus |= union(containers.values())
    if topology_cpus == expected:
        return None
    text = (
        f'current set of available CPUs "{format_cpus(expected)}" doesn\'t match with CPUs in state'
    )
    return ConfigError(f'{text} "{format_cpus(topology_cpus)}"')


def remove_pod(state: CpuState, uid: str) -> CpuState:
    """Return all CPUs of a pod to the shared pool. Its reuse data is dropped, because its uid never
    returns.
    """
    if state.reuse_uid == uid:
        state = CpuState(state.shared, state.entries)
    if uid not in state.entries:
        return state
    entries = {
        pod_uid: containers for pod_uid, containers in state.entries.items() if pod_uid != uid
    }
    shared = state.shared | union(state.entries[uid].values())
    return CpuState(shared, entries, state.reuse_uid, state.reuse)
