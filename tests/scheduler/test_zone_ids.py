"""Zones whose ids leave gaps, as machines with sockets or memory taken out number them: what counts is how many there are."""

from __future__ import annotations

import msgspec
import pytest

from services.scheduler.deciding.config import CycleConfig
from services.scheduler.deciding.outcome import Placed
from shared.domain.pod import Container, Pod
from shared.kubelet.admission import admit, build
from shared.kubelet.config import KubeletConfig
from shared.kubelet.machine import KubeletState
from tests.kubelet.machines import GIB, regular_machine
from tests.scheduler.kubelet_worlds import NODE, proven_world


def numbered(policy: str, ids: tuple[int, ...]) -> KubeletState:
    plain = regular_machine(len(ids), 2)
    zones = tuple(msgspec.structs.replace(zone, id=ids[zone.id]) for zone in plain.zones)
    cpus = tuple(msgspec.structs.replace(cpu, numa=ids[cpu.numa]) for cpu in plain.cpus)
    reserved = {zone: {"memory": GIB} for zone in ids}
    config = KubeletConfig(policy, cpu_policy="static", reserved_cpus="0-1", memory_policy="Static", reserved_memory=reserved)
    state = build(msgspec.structs.replace(plain, zones=zones, cpus=cpus), config)
    assert isinstance(state, KubeletState)
    return state


@pytest.mark.parametrize("policy", ["restricted", "best-effort"])
@pytest.mark.parametrize("ids", [tuple(range(8)), (3, 5, 7, 9, 11, 12, 16, 17), (0, 1, 2, 3, 4, 5, 6, 63)])
def test_a_pod_of_several_zones_is_judged_whatever_their_ids_are(policy: str, ids: tuple[int, ...]) -> None:
    state = numbered(policy, ids)
    for memory, admitted in ((70, True), (600, False)):
        amounts = {"cpu": 5000, "memory": memory * GIB}
        pod = Pod("p", "ns", "p", "Guaranteed", (Container("c", "app", amounts, amounts),))
        assert admit(state, pod).admitted is admitted
        cluster = proven_world(state, CycleConfig()).cluster
        assert (cluster.verdict(pod, NODE) is None) is admitted
        assert isinstance(cluster.place(pod), Placed) is admitted
