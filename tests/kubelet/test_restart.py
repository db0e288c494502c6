"""A kubelet restarts on its checkpoints: what it keeps, what it loses, and when it refuses to
start.
"""

from __future__ import annotations

import msgspec
import pytest

from shared.domain.pod import Container, Pod
from shared.kubelet.admission import Restart, admit, placements, remove, restart, resume
from shared.kubelet.config import KubeletConfig
from shared.kubelet.cpu_manager import CpuState
from shared.kubelet.cpuset import parse_cpus
from shared.kubelet.device_state import Device
from shared.kubelet.machine import KubeletState
from shared.kubelet.options import ConfigError
from tests.kubelet.machines import GPU, container, guaranteed, kubelet


def restarted(state: KubeletState, config: KubeletConfig | None = None) -> Restart:
    again = restart(state, config)
    assert isinstance(again, Restart), again
    return again


def test_running_pods_keep_what_they_hold() -> None:
    pod = guaranteed("a", container("c0", cpu=2, memory=2), container("c1", cpu=4, memory=1))
    state = admit(kubelet(gpus={"g0": 1}), pod).state
    again = restarted(state)
    assert [verdict.admitted for _, verdict in again.readmissions] == [True]
    assert placements(again.state, pod) == placements(state, pod)


def test_what_an_ended_pod_held_is_in_the_way_until_all_have_been_asked() -> None:
    state = admit(kubelet(), guaranteed("a", container(cpu=4, memory=2))).state
    again = restarted(remove(state, "a"))
    assert again.readmissions == ()
    assert again.state.cpu.of("a", "c0")
    assert not admit(again.state, guaranteed("b", container(cpu=2))).state.cpu.of("a", "c0")


def test_full_pcpus_only_can_refuse_a_running_pod() -> None:
    """The kubelet checks before it considers what the pod has: 8 of 12 spare CPUs are the pod's
    already.
    """
    state = kubelet(
        cpu_options={"full-pcpus-only": "true"}, policy="best-effort", reserved_cpus="0,8"
    )
    running = admit(state, guaranteed("a", container(cpu=8, memory=1))).state
    again = restarted(running)
    assert [(verdict.admitted, verdict.reason) for _, verdict in again.readmissions] == [
        (False, "SMTAlignmentError")
    ]
    assert (again.state.pods, again.state.stale.cpu) == ({}, ("a",))


def test_a_stricter_topology_policy_refuses_pods_that_straddle_zones() -> None:
    state = kubelet(policy="best-effort")
    wide, narrow = guaranteed("wide", container(cpu=10)), guaranteed("narrow", container(cpu=2))
    for pod in (wide, narrow):
        state = admit(state, pod).state
    strict = msgspec.structs.replace(state.kubelet.config, topology_policy="single-numa-node")
    again = restarted(state, strict)
    assert [(uid, verdict.admitted) for uid, verdict in again.readmissions] == [
        ("wide", False),
        ("narrow", True),
    ]


@pytest.mark.parametrize(
    ("shared", "entries", "message"),
    [
        ("", {"a": {"c0": 0b100}}, "default cpuset cannot be empty"),
        ("1-15", {}, 'not all reserved cpus: "0-1" are present in defaultCpuSet: "1-15"'),
        (
            "0-15",
            {"a": {"c0": 0b100}},
            'pod: a, container: c0 cpuset: "2" overlaps with default cpuset "0-15"',
        ),
        (
            "0-10",
            {"a": {"c0": 1 << 12}},
            'current set of available CPUs "0-15" doesn\'t match with CPUs in state "0-10,12"',
        ),
    ],
)
def test_a_cpu_state_that_does_not_fit_the_machine_stops_the_start(
    shared: str, entries: dict[str, dict[str, int]], message: str
) -> None:
    fresh = kubelet()
    stored = CpuState(parse_cpus(shared), entries)
    assert resume(fresh, stored, fresh.memory, fresh.devices) == ConfigError(message)


def test_strictly_reserved_cpus_must_not_be_in_the_stored_pool() -> None:
    fresh = kubelet(cpu_options={"strict-cpu-reservation": "true"})
    refused = resume(fresh, CpuState(parse_cpus("0-15")), fresh.memory, fresh.devices)
    assert refused == ConfigError(
        'some of strictly reserved cpus: "0-1" are present in defaultCpuSet: "0-15"'
    )
    refused = resume(fresh, CpuState(parse_cpus("1-15")), fresh.memory, fresh.devices)
    assert refused == ConfigError(
        'some of strictly reserved cpus: "1" are present in defaultCpuSet: "1-15"'
    ), "kubelet 1.36.2"
    assert isinstance(
        resume(fresh, CpuState(parse_cpus("2-15")), fresh.memory, fresh.devices), KubeletState
    )


def test_a_memory_state_of_another_machine_stops_the_start() -> None:
    small, large = kubelet(zones=2), kubelet(zones=4)
    refused = resume(large, large.cpu, small.memory, large.devices)
    assert refused == ConfigError(
        "[memorymanager] the expected machine state is different from the real one"
    )


def test_containers_that_run_keep_devices_that_are_healthy_no_more() -> None:
    """A running container keeps its devices (kubelet 1.36.2). After a reboot no container runs, so
    the pod is rejected. It is also rejected if only another of its containers runs.
    """
    pod = guaranteed(
        "a", container("c0", cpu=1, memory=1, gpus=1), container("c1", cpu=1, memory=1)
    )
    state = admit(kubelet(gpus={"g0": 1, "g1": 1}), pod).state
    none = {GPU: {name: Device(1, healthy=False) for name in ("g0", "g1")}}
    nobody, first, second = (
        frozenset[tuple[str, str]](),
        frozenset({("a", "c0")}),
        frozenset({("a", "c1")}),
    )
    for running, admitted in ((nobody, False), (first, True), (second, False)):
        again = restart(state, devices=none, running=running)
        assert isinstance(again, Restart)
        assert [verdict.admitted for _, verdict in again.readmissions] == [admitted]


def test_a_running_pod_needs_no_healthy_devices_that_it_does_not_request() -> None:
    named = Container(
        "c0",
        "app",
        {"cpu": 1000, "memory": 1 << 30, GPU: 0},
        {"cpu": 1000, "memory": 1 << 30, GPU: 0},
    )
    state = admit(kubelet(gpus={"g0": 1}), Pod("a", "ns", "a", "Guaranteed", (named,))).state
    ill = {GPU: {"g0": Device(1, healthy=False)}}
    for running in (frozenset[tuple[str, str]](), frozenset({("a", "c0")})):
        again = restart(state, devices=ill, running=running)
        assert isinstance(again, Restart)
        assert again.readmissions[0][1].admitted is bool(running)
