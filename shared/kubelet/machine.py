"""The state of one kubelet's resource managers as an immutable value, and its construction.

A machine or configuration that a kubelet would refuse gives its error text. This module does not
know how a pod is admitted.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from shared.domain.pod import Pod
from shared.kubelet import cpu_manager, memory_manager
from shared.kubelet.config import KubeletConfig, MachineConfig, ZoneConfig
from shared.kubelet.cpu_manager import CpuManager, CpuState
from shared.kubelet.cpuset import parse_cpus
from shared.kubelet.device_state import Device, DevicePool, DeviceState, HintNodes, Registered
from shared.kubelet.hint import Hint
from shared.kubelet.masks import MAX_NODES
from shared.kubelet.memory_state import MemoryConfig, MemoryState, NodeMemoryConfig, config_error
from shared.kubelet.options import ConfigError
from shared.kubelet.topology import cpu_topology
from shared.kubelet.topology_manager import TopologyManager, row_of
from shared.kubelet.topology_manager import configure as configure_topology

__all__ = [
    "NOTHING_STALE",
    "ActivePod",
    "Device",
    "Kubelet",
    "KubeletConfig",
    "KubeletState",
    "MachineConfig",
    "Stale",
    "ZoneConfig",
    "build",
]


class Kubelet(msgspec.Struct, frozen=True):
    """The parts that do not change between restarts: the machine, the configuration, and the
    managers made from them.
    """

    machine: MachineConfig
    config: KubeletConfig
    topology: TopologyManager
    cpu: CpuManager


class ActivePod(msgspec.Struct, frozen=True):
    """A pod that is active in the kubelet, with the hint stored for each container so far, in
    container order.
    """

    pod: Pod
    hints: tuple[Hint, ...] = ()


class Stale(msgspec.Struct, frozen=True, gc=False):
    """Uids of ended or rejected pods with holdings that a manager has not dropped yet, by
    manager.
    """

    devices: tuple[str, ...] = ()
    cpu: tuple[str, ...] = ()
    memory: tuple[str, ...] = ()


NOTHING_STALE = Stale()


class KubeletState(msgspec.Struct, frozen=True):
    """One kubelet at one moment. `pods` are the active ones by uid, in order of arrival.

    Holdings of `stale` pods are still in the state and in checkpoints. Each manager drops them at
    its next call.
    """

    kubelet: Kubelet
    cpu: CpuState
    memory: MemoryState
    devices: DeviceState
    pods: Mapping[str, ActivePod] = {}
    stale: Stale = NOTHING_STALE


def build(
    machine: MachineConfig, config: KubeletConfig, devices: Registered | None = None
) -> KubeletState | ConfigError:
    """Return a kubelet freshly started on an empty machine, or the error with which it would not
    start.
    """
    made = _managers(machine, config)
    if isinstance(made, ConfigError):
        return made
    kubelet, memory = made
    hint_nodes: HintNodes = "all" if config.device_hints_on_all_zones else "device-bearing"
    registered = DeviceState(_zone_ids(machine), _pools(devices or {}), hint_nodes=hint_nodes)
    return KubeletState(
        kubelet, cpu_manager.initial(kubelet.cpu), memory_manager.initial(memory), registered
    )


def _pools(devices: Registered) -> dict[str, DevicePool]:
    return {
        name: listed if isinstance(listed, DevicePool) else DevicePool(listed)
        for name, listed in devices.items()
    }


def _managers(
    machine: MachineConfig, config: KubeletConfig
) -> tuple[Kubelet, MemoryConfig] | ConfigError:
    wrong = _machine_error(machine)
    if wrong is not None:
        return wrong
    zones = _zone_ids(machine)
    topology = configure_topology(
        config.topology_policy,
        config.topology_scope,
        config.topology_options,
        zones,
        _distances(machine),
    )
    if isinstance(topology, ConfigError):
        return topology
    cpu = _cpu_manager(machine, config)
    if isinstance(cpu, ConfigError):
        return cpu
    memory = _memory_config(machine, config)
    return (
        memory
        if isinstance(memory, ConfigError)
        else (Kubelet(machine, config, topology, cpu), memory)
    )


def _zone_ids(machine: MachineConfig) -> tuple[int, ...]:
    return tuple(sorted(zone.id for zone in machine.zones))


def _machine_error(machine: MachineConfig) -> ConfigError | None:
    """Return why the model cannot represent the machine: repeated or missing zones, or more than it
    enumerates.
    """
    zones = _zone_ids(machine)
    if not zones or len(set(zones)) != len(zones) or zones[0] < 0:
        return ConfigError(
            f"zones {list(zones)}: a machine needs at least one zone, each id once and not negative"
        )
    if len(zones) > MAX_NODES or zones[-1] >= 64:
        return ConfigError(
            f"{len(zones)} zones up to id {zones[-1]}: at most {MAX_NODES} zones with ids under 64"
        )
    homeless = [cpu.id for cpu in machine.cpus if cpu.numa not in zones]
    if homeless:
        return ConfigError(f"cpu {homeless[0]} lies in a zone that the machine does not list")
    doubled = len({cpu.id for cpu in machine.cpus}) != len(machine.cpus)
    return (
        ConfigError("a machine needs at least one cpu, each id once")
        if doubled or not machine.cpus
        else None
    )


def _distances(machine: MachineConfig) -> dict[int, tuple[int, ...]] | None:
    """Return rows as the kubelet reads them; None unless every zone reports all its distances."""
    ids = _zone_ids(machine)
    if any(len(zone.distances) != len(ids) for zone in machine.zones):
        return None
    return {zone.id: row_of(zone.distances, ids[-1]) for zone in machine.zones}


def _cpu_manager(machine: MachineConfig, config: KubeletConfig) -> CpuManager | ConfigError:
    try:
        reserved = parse_cpus(config.reserved_cpus)
    except ValueError as wrong:
        return ConfigError(f"reservedSystemCPUs {config.reserved_cpus!r}: {wrong}")
    count = -(-config.reserved_cpu_milli // 1000) or reserved.bit_count()
    if config.cpu_policy == cpu_manager.STATIC and count <= 0:
        needed = "systemreserved.cpu + kubereserved.cpu to be greater than zero"
        return ConfigError(f"[cpumanager] the static policy requires {needed}")
    topology = cpu_topology(machine.cpus)
    policy, alpha = config.topology_policy, config.alpha_cpu_options
    return cpu_manager.configure(
        topology, config.cpu_policy, config.cpu_options, count, reserved, policy, alpha
    )


def _memory_config(machine: MachineConfig, config: KubeletConfig) -> MemoryConfig | ConfigError:
    if config.memory_policy not in ("None", "Static"):
        return ConfigError(f'unknown policy: "{config.memory_policy}"')
    nodes = tuple(
        _node_memory(zone, config) for zone in sorted(machine.zones, key=lambda zone: zone.id)
    )
    memory = MemoryConfig("Static" if config.memory_policy == "Static" else "None", nodes)
    wrong = config_error(memory)
    return memory if wrong is None else ConfigError(wrong)


def _node_memory(zone: ZoneConfig, config: KubeletConfig) -> NodeMemoryConfig:
    pages = tuple(sorted(zone.hugepages.items()))
    return NodeMemoryConfig(
        zone.id, zone.memory_bytes, pages, config.reserved_memory.get(zone.id, {})
    )
