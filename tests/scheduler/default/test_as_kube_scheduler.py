"""The nodes that may take a pod, without zones, are those that the filters of a real kube-scheduler
passed (1.36.2; `data/README.md`).
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from services.scheduler.explain.placing import ColumnarPlacing
from services.scheduler.watch.kinds import Kinds, identity
from services.scheduler.watch.seen_specs import SeenSpecs
from shared.events import streams
from shared.events.cluster_events import NodeEnded, NodeObserved
from shared.kube.port import Kind, WatchEvent
from tests.ledger.given import zone
from tests.scheduler.default.story import Story

Json = dict[str, Any]
RECORDED = Path(__file__).parent / "data" / "kube_scheduler_filters.jsonl.gz"
ITS_NAME = "default-scheduler"


def scenes() -> Iterator[list[Json]]:
    """Return the recorded scenes with their steps."""
    steps: list[Json] = []
    for line in gzip.decompress(RECORDED.read_bytes()).splitlines():
        step = json.loads(line)
        if "scene" in step:
            if steps:
                yield steps
            steps = []
        else:
            steps.append(step)
    yield steps


class Watching:
    """The observer's events of objects, and a core that decides instead of kube-scheduler. Zones
    reject no pod.
    """

    def __init__(self) -> None:
        self.story = Story()
        self._kinds = Kinds({ITS_NAME}, SeenSpecs())
        self._objects: dict[tuple[str, str], Json] = {}

    async def see(self, kind: Kind, kubernetes_object: Json, change: Any = "MODIFIED") -> None:
        self._objects[kind, identity(kind, kubernetes_object)] = kubernetes_object
        core = self.story.cores[0]
        for event in self._kinds.events(
            core.folded, ITS_NAME, kind, WatchEvent(change, kubernetes_object)
        ):
            about = event.name if isinstance(event, NodeObserved | NodeEnded) else ""
            await self.story.tell(
                streams.node(about) if about else f"told/{core.ledger.position}", event
            )
            if isinstance(event, NodeObserved) and core.ledger.nodes[about].report is None:
                await self.story.report(zone(0, 64), node=about, tracked=(), policy="none")

    async def miss(self, kind: Kind, key: str) -> None:
        await self.see(kind, self._objects[kind, key], "DELETED")
        del self._objects[kind, key]

    def passing(self, uid: str) -> list[str]:
        core = self.story.cores[0]
        core.decide(0)
        assert isinstance(core.cluster, ColumnarPlacing)
        entry = core.ledger.pods[uid]
        assert not entry.problem
        verdicts = {
            name: core.cluster.verdict(entry.pod, name) for name in sorted(core.ledger.nodes)
        }
        return [name for name, refusal in verdicts.items() if refusal is None]


@pytest.mark.parametrize("steps", list(scenes()), ids=lambda _: "scene")
async def test_the_same_nodes_pass_as_kube_scheduler_let_pass(steps: list[Json]) -> None:
    watching = Watching()
    for step in steps:
        if "asked" in step:
            await watching.see("pods", step["asked"], "ADDED")
            asked = step["asked"]
            assert watching.passing(asked["metadata"]["uid"]) == step["passing"], json.dumps(asked)
            continue
        for seen_case in step["seen"]:
            await watching.see(seen_case["kind"], seen_case["object"])
        for kind, key in step["gone"]:
            await watching.miss(kind, key)
