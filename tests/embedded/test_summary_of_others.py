"""The summary of `topolog up`."""

from __future__ import annotations

from services.embedded.up.display import summary_lines
from services.embedded.up.status import Latency, Scheduling, Status, Workload


def test_the_summary_of_an_outside_cluster_counts_its_pods() -> None:
    scheduling = Scheduling(
        position=99, reserved=7, pods_bound=2, pods_running=3, pods_pending=1, nodes=4
    )
    (line,) = summary_lines(Status(1.0, scheduling=scheduling))
    assert line == "7 pods placed, 5 on 4 nodes now, 1 waiting; 99 events, 0 restart(s)"


def test_reporting_names_without_a_node_object_are_mentioned() -> None:
    """An exporter with a wrong node name is visible in the first status."""
    (line,) = summary_lines(
        Status(1.0, scheduling=Scheduling(nodes=4, nodes_unnamed=1), simulated=False)
    )
    assert "nodes 4 (1 more report without a Node object)" in line
    (line,) = summary_lines(Status(1.0, scheduling=Scheduling(nodes=4), simulated=False))
    assert "nodes 4," in line


def test_every_pod_is_counted_once_also_after_a_resume() -> None:
    workload = Workload(
        total=60,
        created=40,
        resumed=25,
        waiting=3,
        bound=2,
        running=9,
        succeeded=20,
        rejected=1,
        lost=1,
        infeasible=({"task": "big"},) * 2,
        withdrawn=2,
        left=("a",) * 14,
        to_bound=Latency(count=12, p50_ms=5),
    )
    counts, latencies, *_ = summary_lines(Status(1.0, workload), at_end=False)
    assert counts.startswith("40 of 60 pods created over all runs, 25 of them before this one: ")
    numbers = [int(part.split()[0]) for part in counts.partition(": ")[2].split(", ")]
    assert sum(numbers) == 40
    assert latencies.startswith("of the 12 pods bound in this run: ")


def test_a_run_without_a_binding_has_no_latency() -> None:
    resumed = Workload(total=60, created=60, resumed=60, succeeded=60)
    _, latencies, *_ = summary_lines(Status(1.0, resumed))
    assert latencies == "no pod was bound in this run"
