"""The input of a kubelet: the machine as cAdvisor shows it, and the kubelet's configuration.

Plain values, unchecked: `shared.kubelet.admission.build` checks them as the kubelet would. This
module does not know any manager.
"""

from __future__ import annotations

import msgspec

from shared.domain import policies
from shared.domain.resources import Amounts
from shared.kubelet.topology import Cpu
from shared.kubelet.versions import DEFAULT, KubeletRules


class ZoneConfig(msgspec.Struct, frozen=True, omit_defaults=True):
    """One NUMA node. `hugepages` maps page size in bytes to the number of pages, which are part of
    `memory_bytes`.

    `distances` go to every zone in ascending id. They are empty if the machine does not report
    them.
    """

    id: int
    memory_bytes: int = 0
    hugepages: dict[int, int] = {}
    distances: tuple[int, ...] = ()


class MachineConfig(msgspec.Struct, frozen=True, omit_defaults=True):
    """A machine: its zones, and its CPUs with core, socket, zone and uncore cache ids."""

    zones: tuple[ZoneConfig, ...]
    cpus: tuple[Cpu, ...]


class KubeletConfig(msgspec.Struct, frozen=True, omit_defaults=True):
    """The kubelet's settings that admission depends on, with the kubelet's names and defaults, and
    the rules of its version.

    `reserved_cpus` is a Linux list (reservedSystemCPUs). If it is set, a `reserved_cpu_milli` of 0
    means its size. `reserved_memory` is bytes by zone and resource. `node_reservation` is what Node
    Allocatable holds back of memory and hugepages (kubeReserved, systemReserved, hard eviction
    threshold), which must equal the sums of `reserved_memory`; None if unknown. The gates are
    CPUManagerPolicyAlphaOptions, CPUManagerPolicyBetaOptions, those of TopologyManagerPolicy, and
    PodLevelResourceManagers.
    """

    topology_policy: str = policies.NONE
    topology_scope: str = "container"
    topology_options: dict[str, str] = {}
    cpu_policy: str = "none"
    cpu_options: dict[str, str] = {}
    reserved_cpus: str = ""
    reserved_cpu_milli: int = 0
    memory_policy: str = "None"
    reserved_memory: dict[int, Amounts] = {}
    node_reservation: Amounts | None = None
    alpha_cpu_options: bool = False
    beta_cpu_options: bool = True
    alpha_topology_options: bool = False
    beta_topology_options: bool = True
    pod_level_managers: bool = False
    rules: KubeletRules = DEFAULT
