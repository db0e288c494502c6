"""NodeResourceTopology objects from the node: what RTE wrote for every recorded moment, only on
change, errors with a remedy.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from services.exporter import core, objects, recorded
from services.exporter.answers import Allocatable, ListedContainer, ListedPod
from services.exporter.checkpoints import Checkpoints
from services.exporter.handlers import NodeReporter
from services.exporter.objects import Objects
from services.exporter.settings import ExporterSettings
from services.exporter.sysfs import Machine, NumaNode
from shared.domain.report import Freshness, Report, Zone, ZoneResource
from shared.kube.port import Answer, Lost
from shared.telemetry.setup import TelemetrySettings, set_up
from tests.exporter.conftest import MOMENTS
from tests.exporter.test_service import eventually

DROPPED = (
    "creationTimestamp",
    "generation",
    "managedFields",
    "ownerReferences",
    "resourceVersion",
    "uid",
)


class Api:
    """Returns the given answers to applies, and records the applied objects."""

    def __init__(self, *answers: Answer | Lost) -> None:
        self.answers = list(answers)
        self.applied: list[dict[str, Any]] = []
        self.asked = 0

    async def apply_topology(
        self, name: str, topology: dict[str, Any], force: bool = True
    ) -> Answer | Lost:
        self.asked += 1
        answer = self.answers.pop(0) if self.answers else Answer(200)
        if isinstance(answer, Answer) and answer.ok:
            self.applied.append(topology)
        return answer

    async def get_node(self, name: str) -> Answer | Lost:
        return Answer(200, body={"metadata": {"uid": f"uid-{name}"}})


@asynccontextmanager
async def writing(
    api: Api, monkeypatch: pytest.MonkeyPatch, owner: bool = True
) -> AsyncIterator[tuple[Objects, list[str]]]:
    monkeypatch.setattr(objects, "MIN_GAP_S", 0.01)
    monkeypatch.setattr(objects, "BACKOFF_S", (0.01, 0.02))
    said: list[str] = []
    objects_source = Objects(api, owner, said.append)  # type: ignore[arg-type]
    task = asyncio.create_task(objects_source.run())
    try:
        yield objects_source, said
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def report(free: int = 4) -> Report:
    return Report(
        "n1",
        "boot",
        1,
        policy="restricted",
        zones=(Zone(0, {"cpu": ZoneResource(8000, 6000, free * 1000)}),),
    )


def plain(doc: dict[str, Any]) -> bytes:
    """Return the object sorted, without times and uids, because RTE writes zones' lists in map
    order."""
    metadata = {key: value for key, value in doc["metadata"].items() if key not in DROPPED}
    zones = []
    for zone in doc["zones"]:
        lists = {
            key: sorted(value, key=lambda one: one["name"])
            for key, value in zone.items()
            if isinstance(value, list)
        }
        zones.append({**zone, **lists})
    whole = {**doc, "metadata": metadata, "zones": sorted(zones, key=lambda zone: zone["name"])}
    return msgspec.json.encode(whole, order="deterministic")


@pytest.mark.parametrize("moment", MOMENTS)
async def test_the_object_is_what_rte_wrote(
    recordings: Path, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = json.loads((recordings / moment / "nrt-by-rte.json").read_text())
    node_report = recorded.report(
        recordings / moment, recordings / "sysfs", "vm0", None, core.Rules()
    )
    api = Api()
    async with writing(api, monkeypatch) as (written, _):
        written.put(
            node_report, theirs["metadata"]["annotations"]["k8stopoawareschedwg/rte-update"]
        )
        await eventually(lambda: bool(api.applied))
    assert plain(api.applied[0]) == plain(theirs)


async def test_only_changes_are_written_and_the_object_goes_with_its_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    api, telemetry = Api(), set_up("t", TelemetrySettings())
    async with writing(api, monkeypatch) as (written, said):
        for free in (4, 4, 4, 3, 3):
            written.put(report(free), "periodic")
            await asyncio.sleep(0.05)
    assert [result["zones"][0]["resources"][0]["available"] for result in api.applied] == ["4", "3"]
    shown = telemetry.metrics_page().decode()
    assert (
        'rte_operation_delay_milliseconds{node="n1",operation_name="node_resource_object_update",trigger="reactive"}'
        in shown
    )
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "uid-n1"}
    assert api.applied[0]["metadata"]["ownerReferences"] == [owner]
    assert said == []


@pytest.mark.parametrize(
    ("answer", "named"),
    [
        (Answer(404), "install the definition"),
        (Answer(403, message="no"), "answered 403 no; grant create and patch"),
        (Answer(409), "answered 409"),
        (Lost("connection refused"), "connection refused"),
    ],
)
async def test_a_failure_is_logged_once_and_the_newest_state_is_written(
    answer: Answer | Lost, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = Api(answer, answer, answer)
    async with writing(api, monkeypatch, owner=False) as (written, said):
        written.put(report(4), "reactive")
        await eventually(lambda: api.asked > 0)
        written.put(report(2), "reactive")
        await eventually(lambda: bool(api.applied))
        await eventually(lambda: len(said) == 2)
    assert named in said[0]
    assert said[1] == ""
    assert api.applied[-1]["zones"][0]["resources"][0]["available"] == "2"
    assert "ownerReferences" not in api.applied[-1]["metadata"]


async def test_a_round_hands_over_the_listed_containers_alone() -> None:
    """An object counts one container of a pod with an init container that keeps CPUs."""
    kept = Checkpoints(
        ("cpu",),
        {"uid-1": {"init": ListedContainer("init", (2, 3)), "c": ListedContainer("c", (2,))}},
    )
    pods = (ListedPod("default", "p", (ListedContainer("c", (2,)),)),)
    machine = Machine((NumaNode(0, (0, 1, 2, 3)),))
    result = core.Scan(
        Freshness("boot", 1), machine, Allocatable((0, 1, 2, 3)), pods, checkpoints=kept
    )
    kept_of: dict[str, Report] = {}

    class Node:
        async def scan(self) -> core.Scan:
            return result

        def put(self, about: object, state: object) -> None:
            if isinstance(about, Report):
                kept_of["object"] = about

    settings = ExporterSettings(nodes=("n1=/none,/sys",))
    node = Node()
    reporter = NodeReporter("n1", node, settings, node, lambda status: None, objects=node)  # type: ignore[arg-type]
    await reporter.round()
    assert [item.container for item in kept_of["object"].placements or ()] == ["c"]
