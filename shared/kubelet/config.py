"""The input of a kubelet: the machine as cAdvisor shows it, and the kubelet's configuration.

Plain values, unchecked: `shared.kubelet.admission.build` checks them as the kubelet would. This
module does not know any manager.
"""

from __future__ import annotations

import msgspec

from shared.domain import policies
from shared.domain.resources import Amounts
from shared.kubelet.topology import Cpu


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
    """The kubelet's settings that admission depends on, with the kubelet's names and defaults
    (kubelet 1.36).

    `reserved_cpus` is a Linux list (reservedSystemCPUs). If it is set, a `reserved_cpu_milli` of 0
    means its size. `reserved_memory` is bytes by zone and resource. `node_reservation` is what Node
    Allocatable holds back of memory and hugepages (kubeReserved, systemReserved, hard eviction
    threshold), which must equal the sums of `reserved_memory`; None if unknown. `alpha_cpu_options`
    is the gate CPUManagerPolicyAlphaOptions. `device_hints_on_all_zones` is how kubelets before
    kubernetes PR 138244 enumerate device hints.
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
    alpha_cpu_options: bool = True
    device_hints_on_all_zones: bool = False
