"""Zones with gaps between their ids, as machines with sockets or memory taken out number them: only
their number counts.
"""

from __future__ import annotations

import msgspec
import pytest

from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.result import Placed
from shared.domain.demand import zonal_demand
from shared.domain.pod import Container, Pod
from shared.hints.observing import observe
from shared.hints.request import request_of
from shared.kubelet.admission import admit, build
from shared.kubelet.config import KubeletConfig, MachineConfig, ZoneConfig
from shared.kubelet.device_state import Device
from shared.kubelet.machine import KubeletState
from shared.kubelet.masks import nodes_of
from shared.kubelet.topology import Cpu
from tests.kubelet.machines import GIB, regular_machine
from tests.scheduler.kubelet_worlds import NODE, proven_world, report_of


def numbered(policy: str, ids: tuple[int, ...]) -> KubeletState:
    plain = regular_machine(len(ids), 2)
    zones = tuple(msgspec.structs.replace(zone, id=ids[zone.id]) for zone in plain.zones)
    cpus = tuple(msgspec.structs.replace(cpu, numa=ids[cpu.numa]) for cpu in plain.cpus)
    reserved = {zone: {"memory": GIB} for zone in ids}
    config = KubeletConfig(
        policy,
        cpu_policy="static",
        reserved_cpus="0-1",
        memory_policy="Static",
        reserved_memory=reserved,
    )
    state = build(msgspec.structs.replace(plain, zones=zones, cpus=cpus), config)
    assert isinstance(state, KubeletState)
    return state


@pytest.mark.parametrize("policy", ["restricted", "best-effort"])
@pytest.mark.parametrize(
    "ids", [tuple(range(8)), (3, 5, 7, 9, 11, 12, 16, 17), (0, 1, 2, 3, 4, 5, 6, 63)]
)
def test_a_pod_of_several_zones_is_judged_whatever_their_ids_are(
    policy: str, ids: tuple[int, ...]
) -> None:
    state = numbered(policy, ids)
    for memory, admitted in ((70, True), (600, False)):
        amounts = {"cpu": 5000, "memory": memory * GIB}
        pod = Pod("p", "ns", "p", "Guaranteed", (Container("c", "app", amounts, amounts),))
        assert admit(state, pod).admitted is admitted
        cluster = proven_world(state, CycleConfig()).cluster
        assert (cluster.verdict(pod, NODE) is None) is admitted
        assert isinstance(cluster.place(pod), Placed) is admitted


def test_where_ids_leave_gaps_the_kubelet_reads_distances_of_other_nodes() -> None:
    """Zones 0 and 2 are nearest; kubelet 1.36.2 gave this pod zones 0 and 3, as it takes ids for
    places in the list.
    """
    rows = {0: (10, 11, 32, 32), 2: (11, 10, 32, 32), 3: (12, 32, 10, 12), 7: (32, 32, 32, 10)}
    zones = tuple(ZoneConfig(zone, 8 * GIB, {}, row) for zone, row in rows.items())
    cpus = tuple(Cpu(at, at, at // 4, (0, 2, 3)[at // 4], at // 4) for at in range(12))
    options = {"prefer-closest-numa-nodes": "true"}
    config = KubeletConfig(
        "best-effort", topology_options=options, cpu_policy="static", reserved_cpus="4"
    )
    state = build(MachineConfig(zones, cpus), config)
    assert isinstance(state, KubeletState)
    amounts = {"cpu": 6000, "memory": GIB}
    pod = Pod("p", "ns", "p", "Guaranteed", (Container("c", "app", amounts, amounts),))
    (placed,) = admit(state, pod).containers
    assert (placed.hint.mask, placed.hint.preferred, placed.cpu_list) == (0b1001, True, "0-3,8-9")
    seen = observe(report_of(state), (), "best-effort", "container", fine=True)
    assert seen is not None
    (base,) = seen.bases
    assert seen.model.admit(base, request_of(zonal_demand(pod, ("cpu",)))).zones == (0b1001,)


@pytest.mark.parametrize("policy", ["restricted", "best-effort", "single-numa-node"])
@pytest.mark.parametrize(
    ("cpus", "gpus"), [(10, 4), (4, 2), (4, 3), (12, 1), (4, 0), (14, 4), (15, 4)]
)
def test_a_machine_of_34_zones_is_judged_by_zones_that_can_hold_something(
    policy: str, cpus: int, gpus: int
) -> None:
    """GB200: CPUs and GPUs on two zones, 32 zones of GPU memory."""
    plain = regular_machine(2, cores_per_zone=4)
    zones = (*plain.zones, *(ZoneConfig(zone, 0, {}, (10,) * 34) for zone in range(2, 34)))
    zones = tuple(msgspec.structs.replace(zone, distances=(10,) * 34) for zone in zones)
    config = KubeletConfig(
        policy,
        topology_options={"max-allowable-numa-nodes": "34"},
        cpu_policy="static",
        reserved_cpus="0-1",
    )
    gpu = {"vendor.com/gpu": {f"gpu-{index}": Device(1 << index // 2) for index in range(4)}}
    state = build(msgspec.structs.replace(plain, zones=zones), config, gpu)
    assert isinstance(state, KubeletState)
    amounts = {"cpu": cpus * 1000, "memory": GIB} | ({"vendor.com/gpu": gpus} if gpus else {})
    pod = Pod("p", "ns", "p", "Guaranteed", (Container("c", "app", amounts, amounts),))
    answer = admit(state, pod)
    cluster = proven_world(state, CycleConfig()).cluster
    outcome = cluster.place(pod)
    assert isinstance(outcome, Placed) is answer.admitted
    if isinstance(outcome, Placed):
        assert outcome.predicted == {"c": nodes_of(answer.containers[0].hint.mask or 0)}
    else:
        assert "too many possible outcomes" not in outcome.message
