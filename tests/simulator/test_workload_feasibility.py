"""Feasibility by plain arithmetic, held against the kubelet model on empty machines."""

from __future__ import annotations

from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.simulator import kubelet, workload
from services.simulator.cluster import GPU, NIC, NodeShape, Policies, SimulatedNode, lay_out
from services.simulator.feasibility import infeasible, rooms, task_fits
from services.simulator.workload import Task, TaskContainer
from shared.domain.manifest import pod_from_manifest
from shared.domain.pod import Pod
from shared.domain.resources import CPU, MEMORY
from tests.fixtures.examples import examples

GIB = 2**30
POLICIES = ("single-numa-node", "restricted", "best-effort", "none")


def node(policy: str, scope: str = "container", zones: int = 2) -> SimulatedNode:
    shape = NodeShape(
        zones, 8 * zones, 16 * GIB * zones, {GPU: 2 * zones, NIC: 1}, {2**21: 512 * zones}
    )
    return lay_out("n", shape, Policies(policy, scope))


def container(
    cpus: float, memory_gib: int = 1, gpus: int = 0, nics: int = 0, init: bool = False
) -> TaskContainer:
    requests = {CPU: round(cpus * 1000), MEMORY: memory_gib * GIB, GPU: gpus, NIC: nics}
    return TaskContainer(
        f"c{cpus}-{gpus}-{nics}",
        {name: amount for name, amount in requests.items() if amount},
        init,
    )


def admitted(task: Task, on: SimulatedNode) -> bool:
    manifest = workload.manifest(task, "s", "default", "w")
    manifest["metadata"]["uid"] = "u"
    pod = pod_from_manifest(manifest)
    assert isinstance(pod, Pod)
    return kubelet.begin(kubelet.assign(kubelet.start(on), pod), "u")[1].verdict.admitted


def named(*containers: TaskContainer) -> Task:
    listed = tuple(
        TaskContainer(f"c{n}", one.requests, one.init) for n, one in enumerate(containers)
    )
    return Task("t", listed, 1)


@pytest.mark.parametrize(
    ("policy", "scope", "task", "fits"),
    [
        ("single-numa-node", "container", named(container(7)), True),
        ("single-numa-node", "container", named(container(8)), False),
        ("restricted", "container", named(container(9, memory_gib=20)), True),
        ("restricted", "container", named(container(9)), False),
        ("restricted", "container", named(container(8)), False),
        ("best-effort", "container", named(container(8)), True),
        ("none", "container", named(container(14)), True),
        ("none", "container", named(container(15)), False),
        ("single-numa-node", "container", named(container(6), container(6)), True),
        ("single-numa-node", "pod", named(container(6), container(6)), False),
        ("single-numa-node", "container", named(container(2, gpus=2), container(2, gpus=2)), True),
        ("single-numa-node", "container", named(container(2, gpus=3)), False),
        ("single-numa-node", "container", named(container(2, memory_gib=16)), False),
    ],
)
def test_fits_what_an_empty_kubelet_admits(policy: str, scope: str, task: Task, fits: bool) -> None:
    assert task_fits(task, rooms([node(policy, scope)])[0]) is fits
    assert admitted(task, node(policy, scope)) is fits


demands = st.builds(
    container,
    st.sampled_from((0.5, 1, 2, 3, 5, 7, 8, 9, 14)),
    st.sampled_from((1, 5, 14, 15, 20)),
    st.integers(0, 3),
    st.integers(0, 1),
)


@settings(max_examples=examples(200), deadline=None)
@given(
    st.sampled_from(POLICIES),
    st.sampled_from(("container", "pod")),
    st.lists(demands, min_size=1, max_size=2),
)
def test_what_a_kubelet_admits_is_never_called_infeasible(
    policy: str, scope: str, wanted: list[TaskContainer]
) -> None:
    task = named(*wanted)
    if admitted(task, node(policy, scope)):
        assert task_fits(task, rooms([node(policy, scope)])[0])


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(demands, min_size=1, max_size=1))
def test_one_container_under_single_numa_node_is_feasible_exactly_when_admitted(
    wanted: list[TaskContainer],
) -> None:
    task, on = named(*wanted), node("single-numa-node")
    assert task_fits(task, rooms([on])[0]) == admitted(task, on)


def test_demo_names_its_infeasible_tasks() -> None:
    on = lay_out("n", workload.demo_shape(2), Policies())
    refused_tasks = infeasible(islice(workload.demo_tasks(3), 100), rooms([on, on]))
    assert [one.task for one in refused_tasks] == [
        f"demo-{number:04d}-infeasible" for number in (25, 50, 75, 100)
    ]
    assert len(rooms([on, on])) == 1
