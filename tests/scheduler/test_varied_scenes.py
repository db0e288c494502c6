"""A sample of all scenes: each policy and scope, 1 to 8 zones, and everything that a report may
leave open. `python -m tests.bench completeness --proven` runs more of them.
"""

from __future__ import annotations

import msgspec
import pytest

from services.scheduler.explain import undecided as names
from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.result import Placed
from shared.domain.pod import Pod
from shared.hints.cpu import SPREAD, WHOLE_CORES
from shared.hints.devices import UNHEALTHY
from shared.kubelet.admission import admit
from shared.ledger.kubelet_states import OTHER_KUBELET
from tests.kubelet.machines import container, guaranteed, kubelet
from tests.scheduler.kubelet_worlds import (
    NODE,
    Outcome,
    Scene,
    measured,
    proven_world,
    report_of,
    truth,
    world_of,
)
from tests.scheduler.test_cycle_soundness import RULES
from tests.scheduler.varied_scenes import NO_LAYOUT, OPTIONS, SHARES, ZONES, maker

# Scenes for each rule, 2,030 in all.
SAMPLE = 290

# What may be known within bounds only.
CASES = {
    names.MEMORY_GROUPS,
    names.HIDDEN_INIT,
    WHOLE_CORES,
    SPREAD,
    names.PICKS,
    UNHEALTHY,
    names.ENDED_HELD,
    OTHER_KUBELET,
}


def sample(policy: str, scope: str) -> Outcome:
    outcome = Outcome()
    for index, zones in enumerate(ZONES):
        seeds = range(6000, 6000 + SAMPLE)[index :: len(ZONES)]
        measured(
            seeds,
            policy,
            scope,
            unconfirmed=0,
            into=outcome,
            made=maker(policy, scope, zones, unconfirmed=0),
        )
    return outcome


@pytest.mark.parametrize(("policy", "scope"), RULES)
def test_known_scenes_are_judged_as_by_the_kubelet_and_few_are_known_only_within_bounds(
    policy: str, scope: str
) -> None:
    outcome = sample(policy, scope)
    assert (outcome.unsound, outcome.refused_needlessly, outcome.undecided) == ([], [], 0)
    assert outcome.passed > 80
    assert outcome.refused > 80
    assert outcome.bounded <= SAMPLE // 10
    assert outcome.bounded_by.keys() <= set(names.NAMES)
    assert outcome.cases.keys() >= CASES - {names.MEMORY_GROUPS, names.PICKS}
    if policy == "best-effort":
        assert outcome.cases.keys() == CASES
        assert names.MEMORY_GROUPS in outcome.bounded_by


def test_a_whole_node_gpu_pod_of_two_zones_runs_under_best_effort() -> None:
    """24 CPUs, 100 GiB, 8 GPUs on two zones: its memory exceeds one zone."""
    gpus = {f"g{at}": 1 << at % 2 for at in range(8)}
    state, pod = (
        kubelet(2, "best-effort", cores_per_zone=8, gpus=gpus),
        guaranteed("p", container("c", 24, 100, 8)),
    )
    seen = Scene(state, (), pod)
    assert truth(seen) == "admitted"
    assert isinstance(world_of(seen, CycleConfig()).cluster.place(pod), Placed)


@pytest.mark.parametrize("scope", ["container", "pod"])
@pytest.mark.parametrize("policy", ["single-numa-node", "restricted"])
def test_a_sidecar_before_an_init_container_draws_nothing_to_its_zone(
    policy: str, scope: str
) -> None:
    """Sidecar 1 CPU, init 2 CPUs, app 500m, no CPU checkpoint: what the init container keeps may
    lie in either zone.
    """
    small = container("c")
    small = msgspec.structs.replace(small, requests={"cpu": 500}, limits={"cpu": 500})
    runs = Pod(
        "r",
        "ns",
        "r",
        "Guaranteed",
        (container("s", 1, kind="sidecar"), container("i", 2, kind="init"), small),
    )
    state = kubelet(2, policy, scope, cores_per_zone=2, memory_policy="None", reserved_memory={})
    state_after = admit(state, runs).state
    world = proven_world(state_after, CycleConfig(), checkpoints=False)
    for cpus in (1, 2, 3, 4):
        newcomer = guaranteed("p", container("c", cpus))
        if world.cluster.verdict(newcomer, NODE) is None:
            assert admit(state_after, newcomer).admitted, cpus


@pytest.mark.parametrize("scope", ["container", "pod"])
def test_each_container_must_ask_for_whole_cores_whatever_the_scope(scope: str) -> None:
    """This also holds if the report does not list the CPUs: an init container of one CPU is
    rejected, although the pod requests two.
    """
    state = kubelet(1, "single-numa-node", scope, cpu_options={"full-pcpus-only": "true"})
    world = proven_world(state, CycleConfig())
    world.report(msgspec.structs.replace(report_of(state, stored=True), cpus=None, boot_time_ms=2))
    odd = guaranteed("p", container("i", 1, 1, kind="init"), container("c", 2, 1))
    even = guaranteed("q", container("i", 2, 1, kind="init"), container("c", 2, 1))
    assert not admit(state, odd).admitted
    refusal = world.cluster.verdict(odd, NODE)
    assert refusal is not None
    assert "full-pcpus-only" in refusal.remedy
    assert admit(state, even).admitted
    assert world.cluster.verdict(even, NODE) is None


@pytest.mark.parametrize("scope", ["container", "pod"])
def test_cpus_that_an_init_container_leaves_are_no_whole_cores_to_a_later_one(scope: str) -> None:
    """The kubelet counts the free CPUs without them: of 6 CPUs an init container takes 4, and 4
    more are not there.
    """
    state = kubelet(
        1,
        "single-numa-node",
        scope,
        cores_per_zone=4,
        cpu_options={"full-pcpus-only": "true"},
        reserved_cpus="0,4",
    )
    world = proven_world(state, CycleConfig())
    world.report(msgspec.structs.replace(report_of(state, stored=True), cpus=None, boot_time_ms=2))
    pod = guaranteed("p", container("i", 4, 1, kind="init"), container("c", 4, 1))
    assert not admit(state, pod).admitted
    assert world.cluster.verdict(pod, NODE) is not None


@pytest.mark.parametrize("policy", ["none", "best-effort", "single-numa-node"])
def test_whole_cores_are_requested_together_with_devices_of_several_zones_too(policy: str) -> None:
    """Only the search decides such pods, and it knows no cores if the report lists none."""
    state = kubelet(2, policy, gpus={"a": 0b11, "b": 0b01}, cpu_options={"full-pcpus-only": "true"})
    world = proven_world(state, CycleConfig())
    world.report(msgspec.structs.replace(report_of(state, stored=True), cpus=None, boot_time_ms=2))
    odd, even = (guaranteed("p", container("c", cpus, 1, 1)) for cpus in (1, 2))
    assert not admit(state, odd).admitted
    assert world.cluster.verdict(odd, NODE) is not None
    assert world.cluster.verdict(even, NODE) is None


def test_under_policy_none_whole_cores_are_known_within_bounds_without_the_layout() -> None:
    """One whole core is reserved. Without CPU ids, it could also be one half of each of two
    cores.
    """
    state = kubelet(
        1, "none", cores_per_zone=4, reserved_cpus="0,4", cpu_options={"full-pcpus-only": "true"}
    )
    world = proven_world(state, CycleConfig())
    world.report(msgspec.structs.replace(report_of(state, stored=True), cpus=None, boot_time_ms=2))
    pod = guaranteed("p", container("c", 6, 1))
    assert admit(state, pod).admitted
    refusal = world.cluster.verdict(pod, NODE)
    assert refusal is not None
    assert f"undecided: {WHOLE_CORES}" in refusal.remedy


@pytest.mark.parametrize(
    ("seed", "policy", "scope", "zones"),
    [
        (
            8002246,
            "restricted",
            "container",
            8,
        ),  # The init container may get CPUs of another zone than the hint.
        (
            9101080,
            "restricted",
            "pod",
            3,
        ),  # The pending pods fit two zones of a socket, but never one zone.
        (9200182, "best-effort", "container", 1),  # Too few CPUs are left, whichever they are.
    ],
)
def test_aligned_by_socket_and_without_a_layout_no_answer_is_sure(
    seed: int, policy: str, scope: str, zones: int
) -> None:
    """Some possible kubelet state refuses the pod, or another pod because of it."""
    shares = SHARES if seed == 8002246 else {OPTIONS: 1.0, NO_LAYOUT: 1.0}
    seen, world, _ = maker(
        policy, scope, zones, 0 if seed == 9200182 else 3, shares, running=0.0, between=0.0
    )(seed)
    assert seen.base.kubelet.config.cpu_options["align-by-socket"] == "true"
    assert truth(seen) != "admitted"
    assert world.cluster.verdict(seen.pod, NODE) is not None
