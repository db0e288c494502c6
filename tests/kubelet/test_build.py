"""Machines and configurations that a kubelet starts with, and the words with which it refuses the
others.
"""

from __future__ import annotations

import msgspec
import pytest

from shared.kubelet.admission import build
from shared.kubelet.config import KubeletConfig, MachineConfig, ZoneConfig
from shared.kubelet.device_state import Device
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
            (
                "[cpumanager] the static policy requires systemreserved.cpu + kubereserved.cpu "
                "to be greater than zero"
            ),
        ),
        (
            KubeletConfig(cpu_policy="static", reserved_cpus="0-1", reserved_cpu_milli=500),
            (
                "[cpumanager] unable to reserve the required amount of CPUs (size of 0-1 did not "
                "equal 1)"
            ),
        ),
        (
            KubeletConfig(cpu_policy="static", reserved_cpus="0,99"),
            (
                "[cpumanager] unable to build the reserved physical CPUs from the reserved set: "
                "unknown CPU ID: 99"
            ),
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
            (
                "CPU Manager Policy Alpha-level Options not enabled, but option "
                '"align-by-socket" provided'
            ),
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
    built = build(MachineConfig(zones, (Cpu(0, 0, 0, 3, 0), Cpu(1, 1, 0, 3, 0))), KubeletConfig())
    assert not isinstance(built, ConfigError)
    assert built.kubelet.topology.default_mask == 0b1001


def test_reserved_cpus_without_a_list_are_taken_from_the_lowest_cores() -> None:
    built = build(TWO, KubeletConfig(cpu_policy="static", reserved_cpu_milli=1500))
    assert not isinstance(built, ConfigError)
    assert built.kubelet.cpu.reserved == 0b1_0000_0001


MANY = MachineConfig(
    tuple(ZoneConfig(zone, 1 << 30) for zone in range(34)),
    tuple(Cpu(cpu, cpu, 0, cpu % 2, 0) for cpu in range(8)),
)
WIDE = {"max-allowable-numa-nodes": "34"}


def static(**fields: object) -> KubeletConfig:
    return KubeletConfig(
        topology_policy="restricted",
        topology_options=WIDE,
        cpu_policy="static",
        reserved_cpus="0",
        **fields,  # type: ignore[arg-type]
    )


def test_only_zones_that_can_hold_something_count_for_the_models_limit() -> None:
    """GB200 has 34 zones, CPUs on two and GPUs on four."""
    gpus = {"vendor.com/gpu": {f"gpu-{zone}": Device(1 << zone) for zone in (0, 1, 8, 9)}}
    assert not isinstance(build(MANY, static(), gpus), ConfigError)
    every = {"vendor.com/nic": {f"nic-{zone}": Device(1 << zone) for zone in range(34)}}
    for refused in (build(MANY, static(), every), build(MANY, static(memory_policy="Static"))):
        assert isinstance(refused, ConfigError)
        assert refused.is_model_limit
        assert "34 zones" in refused.message


def test_zone_ids_beyond_the_kubelets_masks_work_under_policy_none_only() -> None:
    power = MachineConfig(
        (ZoneConfig(0, 1 << 30), ZoneConfig(255, 1 << 30)),
        (Cpu(0, 0, 0, 0, 0), Cpu(1, 1, 0, 0, 0)),
    )
    assert not isinstance(
        build(power, KubeletConfig(cpu_policy="static", reserved_cpus="0")), ConfigError
    )
    for config in (static(), KubeletConfig(memory_policy="Static")):
        refused = build(power, config)
        assert isinstance(refused, ConfigError)
        assert not refused.is_model_limit
        assert "zone id 255" in refused.message


MIB = 1 << 20


@pytest.mark.parametrize(
    ("reserved", "held_back", "message"),
    [
        ({0: {"memory": 100 * MIB}}, {"memory": 100 * MIB}, ""),
        (
            {0: {"memory": 100 * MIB}},
            {"memory": 90 * MIB},
            'the total amount "100Mi" of type "memory" is not equal to the value "90Mi" '
            "determined by Node Allocatable feature",
        ),
        (
            {0: {"memory": 100 * MIB, "hugepages-2Mi": 10 * MIB}},
            {"memory": 100 * MIB},
            'the total amount "10Mi" of type "hugepages-2Mi" is not equal to the value "0" '
            "determined by Node Allocatable feature",
        ),
        (
            {0: {"memory": 60 * MIB}, 7: {"memory": 40 * MIB}},
            {"memory": 100 * MIB},
            "the reserved memory configuration references a NUMA node 7 that does not exist on "
            "this machine",
        ),
    ],
)
def test_reserved_memory_equals_node_allocatable_or_the_kubelet_does_not_start(
    reserved: dict[int, dict[str, int]], held_back: dict[str, int], message: str
) -> None:
    config = KubeletConfig(
        memory_policy="Static", reserved_memory=reserved, node_reservation=held_back
    )
    built = build(regular_machine(2, cores_per_zone=4), config)
    assert (built.message if isinstance(built, ConfigError) else "") == message
    none = msgspec.structs.replace(config, memory_policy="None")
    assert not isinstance(build(TWO, none), ConfigError)
