"""Machines and configurations that a kubelet starts with, and the words with which it refuses the
others.
"""

from __future__ import annotations

import pytest

from shared.kubelet.admission import build
from shared.kubelet.config import KubeletConfig, MachineConfig, ZoneConfig
from shared.kubelet.options import ConfigError
from shared.kubelet.topology import Cpu
from tests.kubelet.machines import regular_machine

TWO = regular_machine(2, cores_per_zone=4)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (KubeletConfig(topology_policy="strict"), 'unknown policy: "strict"'),
        (
            KubeletConfig(topology_policy="restricted", topology_scope="node"),
            'unknown scope: "node"',
        ),
        (KubeletConfig(cpu_policy="dynamic"), 'unknown policy: "dynamic"'),
        (
            KubeletConfig(cpu_options={"full-pcpus-only": "true"}),
            "None policy: received unsupported options=map[full-pcpus-only:true]",
        ),
        (KubeletConfig(memory_policy="static"), 'unknown policy: "static"'),
        (
            KubeletConfig(memory_policy="Static"),
            "[memorymanager] you should specify the system reserved memory",
        ),
        (
            KubeletConfig(cpu_policy="static"),
            "[cpumanager] the static policy requires systemreserved.cpu + kubereserved.cpu to be greater than zero",
        ),
        (
            KubeletConfig(cpu_policy="static", reserved_cpus="0-1", reserved_cpu_milli=500),
            "[cpumanager] unable to reserve the required amount of CPUs (size of 0-1 did not equal 1)",
        ),
        (
            KubeletConfig(cpu_policy="static", reserved_cpus="0,99"),
            "[cpumanager] unable to build the reserved physical CPUs from the reserved set: unknown CPU ID: 99",
        ),
        (
            KubeletConfig(cpu_policy="static", reserved_cpus="0-", reserved_cpu_milli=1000),
            "reservedSystemCPUs '0-': '0-' is no CPU id or range; write a Linux list such as 0-3,6",
        ),
        (
            KubeletConfig(
                cpu_policy="static",
                reserved_cpus="0",
                alpha_cpu_options=False,
                cpu_options={"align-by-socket": "true"},
            ),
            'CPU Manager Policy Alpha-level Options not enabled, but option "align-by-socket" provided',
        ),
    ],
)
def test_a_wrong_configuration_is_refused_in_the_kubelets_words(
    config: KubeletConfig, message: str
) -> None:
    assert build(TWO, config) == ConfigError(message)


@pytest.mark.parametrize(
    "machine",
    [
        MachineConfig((), (Cpu(0, 0, 0, 0, 0),)),
        MachineConfig((ZoneConfig(0), ZoneConfig(0)), (Cpu(0, 0, 0, 0, 0),)),
        MachineConfig((ZoneConfig(0),), ()),
        MachineConfig((ZoneConfig(0),), (Cpu(0, 0, 0, 0, 0), Cpu(0, 1, 0, 0, 0))),
        MachineConfig((ZoneConfig(0),), (Cpu(0, 0, 0, 7, 0),)),
        MachineConfig(tuple(ZoneConfig(zone) for zone in range(64)), (Cpu(0, 0, 0, 0, 0),)),
        MachineConfig((ZoneConfig(-1),), (Cpu(0, 0, 0, -1, 0),)),
    ],
)
def test_a_machine_that_cannot_be_is_refused(machine: MachineConfig) -> None:
    assert isinstance(build(machine, KubeletConfig()), ConfigError)


def test_more_than_eight_zones_need_the_option() -> None:
    nine = MachineConfig(tuple(ZoneConfig(zone) for zone in range(9)), (Cpu(0, 0, 0, 0, 0),))
    assert build(nine, KubeletConfig(topology_policy="restricted")) == ConfigError(
        "unsupported on machines with more than 8 NUMA Nodes"
    )
    allowed = KubeletConfig(
        topology_policy="restricted", topology_options={"max-allowable-numa-nodes": "9"}
    )
    assert not isinstance(build(nine, allowed), ConfigError)


def test_sparse_zone_ids_and_zones_without_cpus_are_a_machine() -> None:
    zones = (ZoneConfig(0, 1 << 30), ZoneConfig(3, 1 << 30))
    made = build(MachineConfig(zones, (Cpu(0, 0, 0, 3, 0), Cpu(1, 1, 0, 3, 0))), KubeletConfig())
    assert not isinstance(made, ConfigError)
    assert made.kubelet.topology.default_mask == 0b1001


def test_reserved_cpus_without_a_list_are_taken_from_the_lowest_cores() -> None:
    made = build(TWO, KubeletConfig(cpu_policy="static", reserved_cpu_milli=1500))
    assert not isinstance(made, ConfigError)
    assert made.kubelet.cpu.reserved == 0b1_0000_0001
