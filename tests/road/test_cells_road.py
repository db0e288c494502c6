"""`topolog up --cells 2`: pods run in two cells, and a node moves with its pods."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec

from shared.domain.cells import OWNER, WANTED
from tests.road.harness import Road, folder, running, topolog, wait_until

NO_WORKLOAD = ("--cells", "2", "--nodes", "2", "--workload", "none", "--report-interval", "1")
SMALL = {"cpu": "1", "memory": "1Gi"}
PODS = "/api/v1/namespaces/default/pods"


def pod(name: str, cell: str) -> dict[str, Any]:
    resources = {"requests": SMALL, "limits": SMALL}
    container = {"name": "c", "image": "i", "resources": resources}
    return {
        "metadata": {"name": name, "labels": {WANTED: cell}},
        "spec": {"schedulerName": "topolog", "containers": [container]},
    }


def node_of(road: Road, name: str) -> str:
    """Return the node on which a pod runs, "" before that."""
    obj = road.kube(f"{PODS}/{name}") or {}
    runs = obj.get("status", {}).get("phase") == "Running"
    return str(obj["spec"]["nodeName"]) if runs else ""


def test_two_cells_on_one_machine_and_a_node_that_moves() -> None:
    with folder() as path, running(path, *NO_WORKLOAD) as road:
        options = ("--data-dir", str(path))
        for node, cell in (("node-000", "a"), ("node-001", "b")):
            assert topolog("cells", "move", node, "--to", cell, *options).returncode == 0
        for name, cell in (("in-a", "a"), ("in-b", "b"), ("stays", "a")):
            road.kube(PODS, "POST", pod(name, cell))
        where = {
            name: wait_until(partial(node_of, road, name), 60, f"{name} waits", road.output)
            for name in ("in-a", "in-b", "stays")
        }
        assert where == {"in-a": "node-000", "in-b": "node-001", "stays": "node-000"}
        assert topolog("cells", "move", "node-000", "--to", "b", *options).returncode == 0
        labels = road.kube("/api/v1/nodes/node-000")["metadata"]["labels"]
        assert labels[OWNER] == labels[WANTED] == "b"

        def both_in_b() -> bool:
            picture = msgspec.json.decode(topolog("top", "--json", *options).stdout)["cells"]
            pods = {cell: {row["pod"] for row in each["pods"]} for cell, each in picture.items()}
            return pods == {"a": set(), "b": {f"default/{name}" for name in where}}

        wait_until(both_in_b, 30, "the pods are not in cell b alone", road.output)
        printed = topolog("replay", "explain", "stays", *options, "--json").stdout
        stories = [msgspec.json.decode(line) for line in printed.splitlines()]
        assert [story["cell"] for story in stories] == ["a", "b"]
        assert stories[0]["lines"][-1]["title"] == "ended: in another cell now"
        assert all(node_of(road, name) == node for name, node in where.items())
        rows = msgspec.json.decode(topolog("cells", "list", *options, "--json").stdout)
        assert [(row["cell"], row["nodes"], row["pods"]) for row in rows] == [
            ("a", 0, 0),
            ("b", 2, 3),
        ]
