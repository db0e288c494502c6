"""The trace under the overlay: nodes, zones, shapes, lifetimes, rates; and files that are no
trace.
"""

from __future__ import annotations

import gzip
from itertools import islice
from pathlib import Path

import pytest

from services.simulator import traces, workload
from services.simulator.cluster import GPU, NIC, Policies
from services.simulator.feasibility import infeasible, rooms
from services.simulator.traces import TraceError, TraceNode, TraceTask
from shared.kubelet.admission import build
from shared.kubelet.machine import KubeletState

FOLDER = Path(__file__).parent / "traces"


def test_sample_is_every_seventh_node() -> None:
    sample = traces.read_nodes(FOLDER, 200)
    assert [node.name for node in sample[:3]] == [
        "openb-node-0000",
        "openb-node-0007",
        "openb-node-0014",
    ]
    assert sum(node.gpus for node in sample) == 795


def test_whole_list_can_be_asked_for() -> None:
    listed = traces.read_nodes(FOLDER, 1523)
    assert sum(node.gpus for node in listed) == 6212
    with pytest.raises(TraceError, match="1523 nodes are listed, 1524 were asked for"):
        traces.read_nodes(FOLDER, 1524)


def test_big_node_has_two_zones_with_the_odd_one_in_zone_0() -> None:
    node = workload.trace_node(TraceNode("n", 33, 1001, 5), Policies())
    assert [sum(cpu.numa == zone for cpu in node.machine.cpus) for zone in (0, 1)] == [17, 16]
    assert [zone.memory_bytes >> 20 for zone in node.machine.zones] == [501, 500]
    assert [zone.distances for zone in node.machine.zones] == [(10, 21), (21, 10)]
    assert [device.mask for device in node.devices[GPU].values()] == [1, 1, 1, 2, 2]
    assert node.kubelet.reserved_cpus == "0,17"


def test_small_node_has_one_zone_and_two_reserved_cpus() -> None:
    node = workload.trace_node(TraceNode("n", 31, 1000, 0), Policies())
    assert len(node.machine.zones) == 1
    assert node.kubelet.reserved_cpus == "0,1"
    assert node.devices == {}
    assert node.allocatable()["cpu"] == 29000


def test_every_node_of_the_trace_makes_a_kubelet_that_starts() -> None:
    for shape in {
        (node.cpus, node.memory_mib, node.gpus) for node in traces.read_nodes(FOLDER, 1523)
    }:
        node = workload.trace_node(TraceNode("n", *shape), Policies())
        state = build(node.machine, node.kubelet, node.devices)
        assert isinstance(state, KubeletState), state
        assert state.pods == {}


def test_siblings_are_neighbours_inside_a_zone() -> None:
    node = workload.trace_node(TraceNode("n", 32, 1000, 0), Policies())
    cores = {cpu.id: (cpu.socket, cpu.core) for cpu in node.machine.cpus}
    assert all(cores[first] == cores[first + 1] for first in range(0, 32, 2))


def test_tasks_become_guaranteed_pods_with_whole_cpus() -> None:
    row = TraceTask("t", 1500, 0, 2, 9999)
    task = next(workload.trace_tasks((row,)))
    pod = workload.manifest(task, "topolog", "default", "openb")
    resources = pod["spec"]["containers"][0]["resources"]
    assert resources["limits"] == resources["requests"] == {"cpu": "2", "memory": "1Mi", GPU: "2"}
    assert pod["metadata"]["annotations"] == {workload.LIFETIME_ANNOTATION: "600"}
    assert pod["spec"]["schedulerName"] == "topolog"


def test_list_starts_over_under_new_names() -> None:
    rows = (TraceTask("a", 1000, 1, 0, 1), TraceTask("b", 1000, 1, 0, 1))
    assert [task.name for task in islice(workload.trace_tasks(rows), 5)] == [
        "a",
        "b",
        "a-1",
        "b-1",
        "a-2",
    ]


def test_offered_load_is_the_overlays() -> None:
    nodes = [workload.trace_node(node, Policies()) for node in traces.read_nodes(FOLDER, 200)]
    assert round(workload.trace_rate(nodes, 0.9), 2) == 1.96


def test_arrivals_are_poisson_and_repeat_with_the_seed() -> None:
    tasks = [workload.Task(f"t{number}", (), 1.0) for number in range(4000)]
    first, again = (list(workload.poisson(tasks, 2.0, 7)) for _ in range(2))
    assert first == again
    assert first != list(workload.poisson(tasks, 2.0, 8))
    assert 1900 < first[-1].at_s < 2100


def test_six_of_the_first_2000_fit_no_zone_of_the_sample() -> None:
    nodes = [workload.trace_node(node, Policies()) for node in traces.read_nodes(FOLDER, 200)]
    tasks = islice(workload.trace_tasks(traces.read_tasks(FOLDER)), 2000)
    refused_tasks = infeasible(tasks, rooms(nodes))
    assert [one.task for one in refused_tasks] == [
        f"openb-pod-{number}" for number in ("0017", "0128", "0319", "0381", "1639", "1842")
    ]
    assert refused_tasks[0].demand == {"cpu": 88000, "memory": 327680 << 20, GPU: 8}


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("sn,cpu_milli,memory_mib,gpu\nx,many,1,1\n", "line 2: cpu_milli is 'many'"),
        ("sn,cpu_milli\nx,1000\n", "line 2: memory_mib is None"),
        ("", "0 nodes are listed"),
    ],
)
def test_node_list_that_is_none_names_line_and_field(tmp_path: Path, text: str, named: str) -> None:
    (tmp_path / "openb_node_list_all_node.csv.gz").write_bytes(gzip.compress(text.encode()))
    with pytest.raises(TraceError, match=named):
        traces.read_nodes(tmp_path, 1)


def test_missing_folder_names_the_option(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="--workload openb:FOLDER"):
        traces.read_tasks(tmp_path / "none")


NODES = "name,cpu_milli,memory_mib,gpu,rdma,zones\na,96000,1000,8,4,4\nb,96000,1000,,,\n"
TASKS = "name,cpu_milli,memory_mib,num_gpu,rdma,creation_time,deletion_time\nt,1500,10,1,2,5,65\n"


def test_a_trace_of_ones_own_may_have_rdma_and_zones(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text(NODES.replace("b,96000,1000,,", "b,96000,1000,0,"))
    (tmp_path / "tasks.csv.gz").write_bytes(gzip.compress(TASKS.encode()))
    first, second = (workload.trace_node(node, Policies()) for node in traces.read_nodes(tmp_path))
    assert (len(first.machine.zones), len(second.machine.zones)) == (4, 2)
    assert [device.mask for device in first.devices[NIC].values()] == [1, 2, 4, 8]
    assert second.devices == {}
    task = next(workload.trace_tasks(traces.read_tasks(tmp_path)))
    assert task.containers[0].requests == {"cpu": 2000, "memory": 10 << 20, GPU: 1, NIC: 2}
    assert task.lifetime_s == 60


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (NODES, "line 3: gpu is ''"),
        (
            "name,cpu_milli,memory_mib,gpu,zones\na,1000,1,0,65\n",
            "line 2: zones is 65; expected at most 64",
        ),
        ("cpu_milli,memory_mib,gpu\n1000,1,0\n", "a node without a name"),
        ("name,cpu_milli,memory_mib,gpu\na," + "9" * 400 + ",1,0\n", "line 2: cpu_milli is"),
    ],
)
def test_a_node_list_with_a_wrong_line_names_it(tmp_path: Path, text: str, named: str) -> None:
    (tmp_path / "nodes.csv").write_text(text)
    with pytest.raises(TraceError, match=named):
        traces.read_nodes(tmp_path)


def test_the_scarcest_resource_sets_the_rate() -> None:
    node = workload.trace_node(TraceNode("n", 34, 100_000, 4), Policies())
    task = next(workload.trace_tasks((TraceTask("t", 1000, 1, 1, 60),)))
    assert workload.scarce_rate([node], [task], 0.5) == pytest.approx(0.5 * 4 / 60)
    assert workload.scarce_rate([node], [], 0.5) == 0
