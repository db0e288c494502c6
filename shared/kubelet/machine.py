"""The state of one kubelet's resource managers as an immutable value, and its construction.

A machine or configuration that a kubelet would refuse gives its error text. This module does not
know how a pod is admitted.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from shared.domain.pod import Pod
from shared.domain.policies import NONE
from shared.domain.quantity import format_amount
from shared.domain.resources import MEMORY, Amounts, add, memory_of
from shared.kubelet import cpu_manager, memory_manager
from shared.kubelet.config import KubeletConfig, MachineConfig, ZoneConfig
from shared.kubelet.cpu_manager import CpuManager, CpuState
from shared.kubelet.cpuset import parse_cpus
from shared.kubelet.device_state import Device, DevicePool, DeviceState, HintNodes, Registered
from shared.kubelet.hint import Hint
from shared.kubelet.masks import MASK_BITS, MAX_NODES, nodes_of
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
    made = _managers(machine, config, devices or {})
    if isinstance(made, ConfigError):
        return made
    kubelet, memory = made
    hint_nodes: HintNodes = config.rules.device_hint_zones
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
    machine: MachineConfig, config: KubeletConfig, devices: Registered
) -> tuple[Kubelet, MemoryConfig] | ConfigError:
    wrong = _machine_error(machine) or _mask_error(machine, config, devices)
    if wrong is not None:
        return wrong
    zones = _zone_ids(machine)
    topology = configure_topology(
        config.topology_policy,
        config.topology_scope,
        config.topology_options,
        zones,
        _distances(machine),
        levels=config.rules.topology_options,
        alpha=config.alpha_topology_options,
        beta=config.beta_topology_options,
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
    """Return the error in the machine: repeated or missing zones and CPUs."""
    zones = _zone_ids(machine)
    if not zones or len(set(zones)) != len(zones) or zones[0] < 0:
        return ConfigError(
            f"zones {list(zones)}: a machine needs at least one zone, each id once and not negative"
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


def _mask_error(
    machine: MachineConfig, config: KubeletConfig, devices: Registered
) -> ConfigError | None:
    """Return why no masks can be made of the zones: ids beyond the kubelet's bit masks, or more
    zones that can hold something than the model enumerates.
    """
    static_memory = config.memory_policy == "Static"
    if config.topology_policy == NONE and not static_memory:
        return None  # no manager makes a mask
    zones = _zone_ids(machine)
    if zones[-1] >= MASK_BITS:
        return ConfigError(
            f"zone id {zones[-1]}: the masks of the Topology Manager and the Memory Manager hold "
            f"ids below {MASK_BITS}; only topologyManagerPolicy none with memoryManagerPolicy None "
            "works on this machine"
        )
    matter = (
        {cpu.numa for cpu in machine.cpus} if config.cpu_policy == cpu_manager.STATIC else set()
    )
    pools = _pools(devices)
    if static_memory or (pools and config.rules.device_hint_zones == "all"):
        matter.update(zones)
    for pool in pools.values():
        matter.update(nodes_of(pool.bearing))
    if len(matter) <= MAX_NODES:
        return None
    return ConfigError(
        f"{len(matter)} zones can hold CPUs, memory or devices that a manager pins; this model "
        f"judges at most {MAX_NODES}",
        is_model_limit=True,
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
    return cpu_manager.configure(
        topology,
        config.cpu_policy,
        config.cpu_options,
        count,
        reserved,
        config.topology_policy,
        rules=config.rules,
        alpha=config.alpha_cpu_options,
        beta=config.beta_cpu_options,
    )


def _memory_config(machine: MachineConfig, config: KubeletConfig) -> MemoryConfig | ConfigError:
    if config.memory_policy not in ("None", "Static"):
        return ConfigError(f'unknown policy: "{config.memory_policy}"')
    nodes = tuple(
        _node_memory(zone, config) for zone in sorted(machine.zones, key=lambda zone: zone.id)
    )
    memory = MemoryConfig(
        "Static" if config.memory_policy == "Static" else "None",
        nodes,
        config.rules.memory_group_check,
        config.rules.memory_compared_by,
    )
    wrong = _reservation_error(machine, config) or config_error(memory)
    return memory if wrong is None else ConfigError(wrong)


def _reservation_error(machine: MachineConfig, config: KubeletConfig) -> str | None:
    """Compare reservedMemory with the machine and with Node Allocatable, as a kubelet does at
    start.

    Source: kubelet 1.36, memorymanager validateReservedMemory, under policy Static only.
    """
    if config.memory_policy != "Static":
        return None
    zones = _zone_ids(machine)
    sums: Amounts = {}
    for zone, amounts in sorted(config.reserved_memory.items()):
        if zone not in zones:
            return (
                f"the reserved memory configuration references a NUMA node {zone} that does not "
                "exist on this machine"
            )
        sums = add(sums, amounts)
    if config.node_reservation is None:
        return None
    for name in sorted({*sums, *memory_of(config.node_reservation)}):
        reserved, held_back = sums.get(name, 0), config.node_reservation.get(name, 0)
        if reserved != held_back:
            return (
                f'the total amount "{format_amount(MEMORY, reserved)}" of type "{name}" is not '
                f'equal to the value "{format_amount(MEMORY, held_back)}" determined by Node '
                "Allocatable feature"
            )
    return None


def _node_memory(zone: ZoneConfig, config: KubeletConfig) -> NodeMemoryConfig:
    pages = tuple(sorted(zone.hugepages.items()))
    return NodeMemoryConfig(
        zone.id, zone.memory_bytes, pages, config.reserved_memory.get(zone.id, {})
    )
