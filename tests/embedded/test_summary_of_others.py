"""The summary of `topolog up` for a cluster without a workload of its own."""

from __future__ import annotations

from services.embedded.up.display import summary_lines
from services.embedded.up.status import Scheduling, Status


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
