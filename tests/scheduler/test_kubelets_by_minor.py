"""The filter's answer on a node of each minor version is that of a kubelet with its rules."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from services.scheduler.preempt.search import admitted_whatever_it_picks
from services.scheduler.snapshot.config import CycleConfig
from shared.domain.pod import Container, Pod
from shared.domain.refusal import Reason
from shared.kubelet.admission import admit
from shared.kubelet.machine import KubeletState
from shared.kubelet.versions import RULES
from shared.kubelet.walk import SIDECAR_FORBIDDEN
from tests.kubelet.machines import GIB, container, guaranteed, kubelet
from tests.scheduler.cycle_worlds import World
from tests.scheduler.kubelet_worlds import NODE, proven_world, scene
from tests.scheduler.varied_scenes import observed

MINORS = tuple(RULES)
SCENES = range(60)


def world_of(state: KubeletState, version: str) -> World:
    world = proven_world(state, CycleConfig())
    observed(world, state, version)
    return world


def passes(state: KubeletState, pod: Pod, version: str) -> bool:
    return world_of(state, version).cluster.verdict(pod, NODE) is None


@pytest.mark.parametrize("policy", ["best-effort", "restricted", "single-numa-node"])
@pytest.mark.parametrize("minor", MINORS)
def test_the_answer_is_that_of_a_kubelet_of_the_version(minor: int, policy: str) -> None:
    """Up to 1.29 podresources hides sidecars. Their pods are not confirmed, so some other pods
    wait."""
    refused_needlessly = 0
    for seed in SCENES:
        seen = scene(seed, policy, "container", 2 + seed % 3, unconfirmed=0, rules=RULES[minor])
        admitted = admitted_whatever_it_picks(seen.base, seen.pod)
        passed = passes(seen.base, seen.pod, f"v1.{minor}.4")
        assert admitted or not passed, seed
        refused_needlessly += admitted and not passed
    assert refused_needlessly <= (0 if RULES[minor].lists_sidecars else len(SCENES) // 6)


def overlapping(minor: int) -> tuple[KubeletState, Pod]:
    """Return a kubelet on which a pod holds memory of zone 0 alone, and a pod whose CPUs and memory
    need both zones."""
    state = kubelet(2, "restricted", rules=RULES[minor])
    alone = admit(state, guaranteed("a", container("c", 1, 40)))
    assert alone.admitted
    return alone.state, guaranteed("p", container("c", 9, 70))


@pytest.mark.parametrize(("minor", "admitted"), [(31, True), (32, False)])
def test_memory_over_zones_that_are_used_alone(minor: int, admitted: bool) -> None:
    state, pod = overlapping(minor)
    assert admit(state, pod).admitted is admitted
    assert passes(state, pod, f"v1.{minor}.0") is admitted


@pytest.mark.parametrize("version", ["", "v1.32.0-rc.0"])
def test_a_pod_that_one_possible_version_refuses_is_refused(version: str) -> None:
    state, pod = overlapping(31)
    assert not passes(state, pod, version)


def test_without_the_memory_checkpoint_no_zones_are_joined() -> None:
    state, pod = overlapping(31)
    world = proven_world(state, CycleConfig(), False)
    observed(world, state, "v1.31.4")
    assert world.cluster.verdict(pod, NODE) is not None


def with_kinds(*kinds: str) -> Pod:
    amounts = {"cpu": 1000, "memory": GIB}
    containers = [Container(f"c{at}", kind, amounts, amounts) for at, kind in enumerate(kinds)]  # type: ignore[arg-type]
    return guaranteed("p", *containers)


@pytest.mark.parametrize(
    ("version", "refused"),
    [("v1.27.16", True), ("v1.28.15", True), ("v1.29.0", False), ("v1.36.2", False), ("", True)],
)
def test_sidecars_go_to_kubelets_that_have_them(version: str, refused: bool) -> None:
    state, pod = kubelet(2, "restricted"), with_kinds("sidecar", "app")
    refusal = world_of(state, version).cluster.verdict(pod, NODE)
    assert (refusal is not None and refusal.reason == Reason.FEATURE) is refused
    assert passes(state, with_kinds("init", "app"), version)


def test_an_old_kubelet_refuses_a_sidecar_after_it_has_found_zones() -> None:
    answer = admit(kubelet(2, "restricted", rules=RULES[28]), with_kinds("sidecar", "app"))
    assert (answer.admitted, answer.reason) == (False, SIDECAR_FORBIDDEN)


POD_LEVEL = {"cpu": 4000, "memory": 4 * GIB}


@pytest.mark.parametrize(("minor", "cpus"), [(28, 1), (33, 1), (34, 0), (36, 0)])
def test_pod_level_resources_by_minor(minor: int, cpus: int) -> None:
    """To 1.33 the containers get exclusive CPUs: no pod of that kind goes there."""
    state = kubelet(2, "restricted", rules=RULES[minor])
    pod = msgspec.structs.replace(with_kinds("app"), pod_level=POD_LEVEL)
    answer = admit(state, pod)
    cpu_counts: Sequence[int] = [part.cpus.bit_count() for part in answer.containers]
    assert (answer.admitted, cpu_counts) == (True, [cpus])
    refusal = world_of(state, f"v1.{minor}.1").cluster.verdict(pod, NODE)
    assert (refusal is not None) is bool(cpus)
    if refusal is not None:
        assert refusal.reason == Reason.FEATURE
        assert refusal.phrase.endswith(f"(kubelet v1.{minor}.1)")


@pytest.mark.parametrize("minor", [28, 29, 33])
def test_by_the_containers_class_or_by_the_pods(minor: int) -> None:
    """The pod is Guaranteed by its own resources, its containers are not. To 1.28 the containers
    decide."""
    bare = Container("c", "app", {"cpu": 1000}, {})
    pod = msgspec.structs.replace(guaranteed("p", bare), pod_level=POD_LEVEL)
    answer = admit(kubelet(2, "restricted", rules=RULES[minor]), pod)
    assert [part.cpus.bit_count() for part in answer.containers] == [int(minor >= 29)]
