"""`topolog up --cells 2`: a node moves with its pods while services are killed, pods that a cell
cannot place go on to the other one, and commands answer for both cells."""

from __future__ import annotations

import contextlib
import io
import os
import signal
from pathlib import Path
from typing import Any

import msgspec

from services.cli.main import app
from shared.domain.cells import OWNER, WANTED, Cell, Cells
from shared.domain.gang import KOORDINATOR_MIN, KOORDINATOR_NAME
from tests.road.harness import Road, folder, running, wait_until

NO_WORKLOAD = ("--cells", "2", "--nodes", "2", "--workload", "none", "--report-interval", "1")
SMALL = {"cpu": "1", "memory": "1Gi"}
PODS, NODES = "/api/v1/namespaces/default/pods", "/api/v1/nodes"
CELLS = Cells("a", (Cell("a"), Cell("b")))


def pod(name: str, cell: str = "", gang: str = "") -> dict[str, Any]:
    resources = {"requests": SMALL, "limits": SMALL}
    container = {"name": "c", "image": "i", "resources": resources}
    keys = {KOORDINATOR_NAME: gang, KOORDINATOR_MIN: "2"}
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "labels": {WANTED: cell} if cell else {},
            "annotations": keys if gang else {},
        },
        "spec": {"schedulerName": "topolog", "containers": [container]},
    }


def gang_of_a() -> str:
    """Return a gang that the hash gives to cell a."""
    names = (f"gang-{number}" for number in range(100))
    return next(name for name in names if CELLS.route(pod("p", gang=name)).cell == "a")


def nodes_of(road: Road) -> dict[str, str]:
    """Return the node of each pod that runs."""
    listed = road.kube(PODS)["items"]
    running_pods = [obj for obj in listed if obj.get("status", {}).get("phase") == "Running"]
    return {obj["metadata"]["name"]: obj["spec"]["nodeName"] for obj in running_pods}


def run_all(road: Road, names: set[str]) -> dict[str, str]:
    """Return the node of each of these pods once all run."""

    def all_run() -> dict[str, str]:
        nodes = nodes_of(road)
        return nodes if nodes.keys() >= names else {}

    return dict(wait_until(all_run, 60, f"of {names} some wait", road.output))


def label(road: Road, node: str, cell: str) -> None:
    road.kube(f"{NODES}/{node}", "PATCH", {"metadata": {"labels": {WANTED: cell}}})


def owned(road: Road, node: str, cell: str) -> None:
    def is_owned() -> bool:
        labels = road.kube(f"{NODES}/{node}")["metadata"]["labels"]
        return bool(labels.get(OWNER) == cell)

    wait_until(is_owned, 60, f"{node} is not in {cell}", road.output)


def asked(path: Path, *arguments: str) -> list[Any]:
    """Return the JSON lines of a command that succeeds. It runs here, because a process of its own
    takes a second to start."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        code = app([*arguments, "--data-dir", str(path), "--json"], standalone_mode=False)
    assert not code, printed.getvalue()
    return [msgspec.json.decode(line) for line in printed.getvalue().splitlines()]


def test_two_cells_on_one_machine_and_a_node_that_moves() -> None:
    env = {"TOPOLOG_CELL_WAIT_S": "1"}
    with folder() as path, running(path, *NO_WORKLOAD, env=env) as road:
        for node, cell in (("node-000", "a"), ("node-001", "b")):
            label(road, node, cell)
        for node, cell in (("node-000", "a"), ("node-001", "b")):
            owned(road, node, cell)
        for name, cell in (("in-a", "a"), ("in-b", "b"), ("stays", "a")):
            road.kube(PODS, "POST", pod(name, cell))
        where = run_all(road, {"in-a", "in-b", "stays"})
        assert where == {"in-a": "node-000", "in-b": "node-001", "stays": "node-000"}
        names = [f"load-{number}" for number in range(6)]
        for number, name in enumerate(names):
            road.kube(PODS, "POST", pod(name))
            if number == 3:
                label(road, "node-000", "b")
        for service in ("scheduler", "binder", "scheduler-b"):
            os.kill(road.pid(service), signal.SIGKILL)
        owned(road, "node-000", "b")
        gang = gang_of_a()
        for name in ("first", "second"):
            road.kube(PODS, "POST", pod(name, gang=gang))
        everything = {*where, *names, "first", "second"}
        at_last = run_all(road, everything)
        assert at_last == at_last | where
        assert asked(path, "cells", "move", "node-001", "--to", "b")[0]["owner"] == "b"

        def all_in_b() -> bool:
            (picture,) = asked(path, "top")
            cells = {
                cell: {row["pod"] for row in of["pods"]} for cell, of in picture["cells"].items()
            }
            return cells == {"a": set(), "b": {f"default/{name}" for name in everything}}

        wait_until(all_in_b, 30, "the pods are not in cell b alone", road.output)
        _answers(path)
        rows = asked(path, "cells", "list")[0]
        assert [(row["cell"], row["nodes"], row["pods"]) for row in rows] == [
            ("a", 0, 0),
            ("b", 2, len(everything)),
        ]


def _answers(path: Path) -> None:
    """Check what commands say about both cells."""
    stories = asked(path, "replay", "explain", "stays")
    assert [story["cell"] for story in stories] == ["a", "b"]
    assert stories[0]["lines"][-1]["title"] == "ended: in another cell now"
    gone, came = asked(path, "replay", "explain", "first")
    hop, ended = [line["title"] for line in gone["lines"]][-2:]
    assert hop.startswith("let go to the next cell (hop 1): gang ")
    assert ended == "ended: in another cell now"
    assert (gone["cell"], came["cell"]) == ("a", "b")
    verified = asked(path, "replay", "verify")
    assert [(row["cell"], row["violations"]) for row in verified] == [("a", []), ("b", [])]
    nodes = {
        row["cell"]: {node["node"] for node in row["nodes"]}
        for row in asked(path, "replay", "at", "head")
    }
    assert nodes["b"] >= {"node-000", "node-001"}
    events = asked(path, "replay", "log", "--pod", "stays")
    assert events[-1]["type"] != "PodEnded"
    findings = asked(path, "doctor")
    assert {finding["about"].partition(":")[0] for finding in findings} >= {"cell a", "cell b"}
