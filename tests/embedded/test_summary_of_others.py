"""What `topolog up` says at its end of a cluster whose pods are not its own."""

from __future__ import annotations

from services.embedded.up.display import summary_lines
from services.embedded.up.status import Scheduling, Status


def test_the_summary_of_an_outside_cluster_tells_of_its_pods() -> None:
    scheduling = Scheduling(
        position=99, reserved=7, pods_bound=2, pods_running=3, pods_pending=1, nodes=4
    )
    (line,) = summary_lines(Status(1.0, scheduling=scheduling))
    assert line == "7 pods placed, 5 on 4 nodes now, 1 waiting; 99 facts, 0 restart(s)"


def test_names_that_no_node_object_has_are_told_apart_from_nodes() -> None:
    """An exporter whose node is called otherwise in the cluster is seen at the first look."""
    (line,) = summary_lines(
        Status(1.0, scheduling=Scheduling(nodes=4, nodes_unnamed=1), simulated=False)
    )
    assert "nodes 4 (1 more report without a Node object)" in line
    (line,) = summary_lines(Status(1.0, scheduling=Scheduling(nodes=4), simulated=False))
    assert "nodes 4," in line
