"""A report that leaves a resource out is no evidence that the kubelet does not pin it: the kubelet
rejects no pod that was placed next to such a report.
"""

from __future__ import annotations

import msgspec
import pytest

from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.result import Placed
from shared.domain.refusal import Reason
from shared.domain.report import Report
from shared.domain.resources import CPU, MEMORY
from shared.kubelet.admission import admit
from tests.kubelet.machines import GPU
from tests.scheduler.cycle_worlds import World, amounts, container, guaranteed, zone
from tests.scheduler.cycle_worlds import report as reported
from tests.scheduler.kubelet_worlds import (
    NODE,
    Scene,
    offered_devices,
    report_of,
    scene,
)
from tests.scheduler.objects import through_object

SCENES = 60
STRICT = CycleConfig(unpinned=())
LENIENT = CycleConfig(unpinned=("*",))
RULES = [
    ("single-numa-node", "container"),
    ("restricted", "pod"),
    ("best-effort", "container"),
    ("none", "container"),
]


def without(report: Report, *left_out: str) -> Report:
    """Return the report of an exporter that leaves these resources out."""
    zones = tuple(
        msgspec.structs.replace(
            zone,
            resources={name: r for name, r in zone.resources.items() if name not in left_out},
            free={name: size for name, size in zone.free.items() if name not in left_out},
        )
        for zone in report.zones
    )
    tracked = tuple(name for name in report.tracked if name not in left_out)
    return msgspec.structs.replace(report, zones=zones, tracked=tracked)


def world_of(seen: Scene, config: CycleConfig, report: Report) -> World:
    world = World(config)
    manager = seen.base.kubelet.cpu
    cpus = (manager.topology.every & ~manager.reserved).bit_count()
    offered = {"cpu": 1000 * cpus, "memory": 1 << 50, "pods": 110}
    world.observe(NODE, allocatable=offered | offered_devices(seen.base))
    for active in seen.base.pods.values():
        world.bound(active.pod, NODE)
    world.report(report)
    return world


def counts(
    policy: str, scope: str, left_out: tuple[str, ...], config: CycleConfig, as_object: bool
) -> tuple[int, int]:
    """Return how many pods were placed, and how many of them the kubelet rejects."""
    placed = rejected = 0
    for seed in range(SCENES):
        seen = scene(seed, policy, scope, zones=2, unconfirmed=0, as_object=True)
        report = without(report_of(seen.base, stored=True), *left_out)
        world = world_of(seen, config, through_object(report) if as_object else report)
        if isinstance(world.cluster.place(seen.pod), Placed):
            placed += 1
            rejected += not admit(seen.base, seen.pod).admitted
    return placed, rejected


@pytest.mark.parametrize(("policy", "scope"), RULES)
@pytest.mark.parametrize("left_out", [("cpu",), ("memory", "hugepages-2Mi"), (GPU,)])
def test_no_kubelet_rejects_a_pod_for_what_its_object_leaves_out(
    policy: str, scope: str, left_out: tuple[str, ...]
) -> None:
    config = CycleConfig() if left_out == ("cpu",) else STRICT
    _, rejected = counts(policy, scope, left_out, config, as_object=True)
    assert rejected == 0


@pytest.mark.parametrize("left_out", [("cpu",), ("memory", "hugepages-2Mi")])
def test_no_kubelet_rejects_a_pod_for_what_its_own_exporter_leaves_out(
    left_out: tuple[str, ...],
) -> None:
    for policy, scope in RULES:
        _, rejected = counts(policy, scope, left_out, CycleConfig(), as_object=False)
        assert rejected == 0, policy


def test_these_scenes_have_pods_that_the_kubelet_would_reject() -> None:
    for left_out in (("cpu",), ("memory", "hugepages-2Mi"), (GPU,)):
        _, rejected = counts("restricted", "pod", left_out, LENIENT, as_object=True)
        assert rejected, left_out


def asked_of(report: Report, *settings: CycleConfig, cpu: float, **requests: int) -> list[str]:
    """Return the subject of the refusal under each setting, "" if the pod is placed."""
    subjects = []
    for config in settings:
        world = World(config)
        world.observe(NODE, allocatable=amounts(32, 128, 8) | {"hugepages-2Mi": 1 << 30})
        world.report(through_object(report))
        pod = guaranteed("p", container("main", amounts(cpu, **requests)))
        refusal = world.cluster.verdict(pod, NODE)
        assert refusal is None or refusal.reason is Reason.UNLISTED
        subjects.append("" if refusal is None else refusal.subject)
    return subjects


def test_the_refusal_names_the_resource_and_the_setting_lifts_it() -> None:
    zones = zone(0, amounts(16, 64, 4)), zone(1, amounts(16, 64, 4))
    whole = reported(NODE, zones, policy="restricted")
    assert asked_of(whole, STRICT, CycleConfig(), cpu=4, memory=8) == ["", ""]
    no_cpus = without(whole, CPU)
    assert asked_of(no_cpus, CycleConfig(), LENIENT, cpu=4, memory=8) == [CPU, ""]
    assert asked_of(no_cpus, CycleConfig(), cpu=0.5, memory=8) == [""]
    no_memory = without(whole, MEMORY)
    assert asked_of(no_memory, STRICT, CycleConfig(), cpu=4, memory=8) == [MEMORY, ""]
    one_zone = without(reported(NODE, zones[:1], policy="restricted"), CPU)
    assert asked_of(one_zone, STRICT, cpu=4, memory=8) == [""]


def test_a_memory_manager_that_pins_memory_pins_hugepages() -> None:
    zones = zone(0, amounts(16, 64)), zone(1, amounts(16, 64))
    pages = {"memory": 8, "hugepages-2Mi": 1 << 20}
    for policy in ("none", "restricted"):
        report = reported(NODE, zones, policy=policy)
        assert asked_of(report, LENIENT, cpu=4, **pages) == ["hugepages-2Mi"]
