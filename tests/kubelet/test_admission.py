"""Admission by one kubelet: verdicts, zones of containers, the state after removal and rejection,
and the steps between.
"""

from __future__ import annotations

from shared.domain.pod import Pod
from shared.kubelet.admission import (
    Admission,
    admission_steps,
    admit,
    drop_stale,
    placements,
    remove,
    start_containers,
)
from shared.kubelet.hint import Hint
from shared.kubelet.machine import KubeletState
from tests.kubelet.machines import GIB, GPU, container, guaranteed, kubelet


def admitted(state: KubeletState, pod: Pod) -> KubeletState:
    verdict = admit(state, pod)
    assert verdict.admitted, verdict.message
    return verdict.state


def test_a_pod_lands_on_one_zone_with_cpus_memory_and_devices() -> None:
    state = kubelet(gpus={"g0": 0b10, "g1": 0b10})
    verdict = admit(state, guaranteed("a", container(cpu=2, memory=4, gpus=1)))
    only = verdict.containers[0]
    assert (verdict.admitted, only.hint, only.cpu_list) == (True, Hint(0b10, True), "4,12")
    assert [(block.mask, block.size) for block in only.memory] == [(0b10, 4 * GIB)]
    assert only.devices == {GPU: ("g0",)}


def test_enough_on_the_machine_but_not_on_one_zone_is_a_topology_affinity_error() -> None:
    pod = guaranteed("a", container(cpu=10))
    for policy, ok in (("single-numa-node", False), ("restricted", True), ("best-effort", True)):
        assert admit(kubelet(policy=policy), pod).admitted is ok, policy
    assert admit(kubelet(policy="none"), guaranteed("a", container(cpu=10, memory=1))).admitted
    verdict = admit(kubelet(), pod)
    assert (verdict.reason, verdict.message) == (
        "TopologyAffinityError",
        "Resources cannot be allocated with Topology locality",
    )


def test_restricted_takes_two_zones_only_when_one_could_never_hold_the_request() -> None:
    state = kubelet(policy="restricted", reserved_cpus="0,8,4,12")
    assert admit(state, guaranteed("wide", container(cpu=10))).containers[0].hint == Hint(
        0b11, True
    )
    narrow = admit(state, guaranteed("narrow", container(cpu=8)))
    assert (narrow.admitted, narrow.reason) == (False, "TopologyAffinityError")


def test_restricted_refuses_when_memory_wants_one_zone_and_cpus_want_two() -> None:
    pod = guaranteed("a", container(cpu=10, memory=1))
    assert admit(kubelet(policy="restricted"), pod).reason == "TopologyAffinityError"
    assert admit(kubelet(policy="best-effort"), pod).containers[0].hint == Hint(0b11, False)


def test_pod_scope_puts_containers_together_that_container_scope_lets_apart() -> None:
    pod = guaranteed("a", container("c0", cpu=4, memory=1), container("c1", cpu=4, memory=1))
    apart = admit(kubelet(), pod)
    together = admit(kubelet(scope="pod"), pod)
    assert [each.hint.mask for each in apart.containers] == [0b01, 0b10]
    assert [each.hint.mask for each in together.containers] == [0b10, 0b10]


def test_admission_is_not_monotone_in_free_capacity() -> None:
    """With room in zone 0 the first container goes there and takes what the second one needs next
    to the GPU.
    """
    pod = guaranteed(
        "a", container("c0", cpu=5, memory=1), container("c1", cpu=2, memory=1, gpus=1)
    )
    roomy = kubelet(gpus={"g0": 0b01})
    tight = admitted(roomy, guaranteed("other", container(cpu=2, memory=1)))
    assert not admit(roomy, pod).admitted
    assert admit(tight, pod).admitted


def test_burstable_and_fractional_containers_stay_in_the_shared_pool() -> None:
    state = kubelet()
    pod = Pod("b", "default", "b", "Burstable", (container(cpu=2, memory=1),))
    verdict = admit(state, pod)
    assert (verdict.admitted, verdict.containers[0].cpus, verdict.containers[0].memory) == (
        True,
        0,
        (),
    )
    assert verdict.state.cpu.shared == state.cpu.shared


def test_the_steps_show_the_pod_listed_then_devices_then_cpus_then_memory() -> None:
    state, pod = kubelet(gpus={"g0": 0b01}), guaranteed("a", container(cpu=2, memory=1, gpus=1))
    steps = admission_steps(state, pod)
    seen = []
    while True:
        try:
            seen.append(placements(next(steps), pod)[0])
        except StopIteration as stop:
            verdict: Admission = stop.value
            break
    shown = [(bool(each.devices), bool(each.cpus), bool(each.memory)) for each in seen]
    assert shown == [
        (False, False, False),
        (True, False, False),
        (True, True, False),
        (True, True, True),
    ]
    assert verdict == admit(state, pod)


def test_what_a_rejected_pod_took_before_its_failure_is_free_for_the_next() -> None:
    state = kubelet()
    verdict = admit(
        state, guaranteed("a", container("c0", cpu=6, memory=1), container("c1", cpu=9, memory=1))
    )
    assert not verdict.admitted
    assert verdict.state.cpu.of("a", "c0")
    assert drop_stale(verdict.state) == state
    assert admit(verdict.state, guaranteed("b", container(cpu=6, memory=1))).admitted


def test_a_removed_pod_is_listed_no_more_and_its_holdings_go_with_the_next_admission() -> None:
    state = kubelet()
    pod = guaranteed("a", container(cpu=4, memory=2))
    gone = remove(admitted(state, pod), "a")
    assert "a" not in gone.pods
    assert gone.cpu.of("a", "c0")
    assert drop_stale(gone) == state
    assert remove(state, "nobody") == state


def test_a_state_is_a_value_that_admission_leaves_alone() -> None:
    state = kubelet(gpus={"g0": 0b01})
    fields_before = (state.cpu, state.memory, state.devices, dict(state.pods))
    admit(state, guaranteed("a", container(cpu=4, memory=2, gpus=1)))
    assert (state.cpu, state.memory, state.devices, dict(state.pods)) == fields_before


def test_an_init_container_leaves_cpus_and_devices_to_the_app_and_memory_until_it_starts() -> None:
    state = kubelet(gpus={"g0": 0b01})
    init = container("init", cpu=2, memory=4, gpus=1, kind="init")
    pod = guaranteed("a", init, container("app", cpu=2, memory=1, gpus=1))
    verdict = admit(state, pod)
    first, second = verdict.containers
    assert (first.cpus, first.devices) == (second.cpus, second.devices)
    assert _reserved(verdict.state) == 4 * GIB
    assert _reserved(start_containers(verdict.state, pod)) == GIB


def _reserved(state: KubeletState) -> int:
    return sum(node.tables["memory"].reserved for node in state.memory.nodes.values())


def test_a_sidecar_shares_nothing_with_the_containers_after_it() -> None:
    sidecar = container("side", cpu=2, memory=1, kind="sidecar")
    first, second = admit(
        kubelet(), guaranteed("a", sidecar, container("app", cpu=2, memory=1))
    ).containers
    assert first.cpus.bit_count() == second.cpus.bit_count() == 2
    assert not first.cpus & second.cpus


def test_the_arbitrary_choice_of_devices_is_the_callers() -> None:
    state = kubelet(gpus={"g0": 0b01, "g1": 0b01, "g2": 0b01})
    highest = admit(
        state, guaranteed("a", container(gpus=1)), pick=lambda ids, count: sorted(ids)[-count:]
    )
    assert highest.containers[0].devices == {GPU: ("g2",)}


def test_the_plugin_may_prefer_devices_among_the_aligned_ones() -> None:
    state = kubelet(gpus={"g0": 0b01, "g1": 0b01, "g2": 0b10})
    pod = guaranteed("a", container(cpu=6, memory=1, gpus=1))
    verdict = admit(state, pod, prefer=lambda resource, available, required, size: {"g1", "g2"})
    assert verdict.containers[0].devices == {GPU: ("g1",)}


def test_admitting_an_active_pod_again_changes_nothing() -> None:
    pod = guaranteed("a", container(cpu=4, memory=2))
    once = admitted(kubelet(), pod)
    assert admit(once, pod).containers == placements(once, pod)
    assert drop_stale(admit(once, pod).state).cpu.entries == once.cpu.entries
