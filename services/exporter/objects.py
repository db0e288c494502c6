"""NodeResourceTopology objects written by the node itself, as resource-topology-exporter does: only
on change, at a bounded rate.

Server-side apply creates and changes in one call and leaves nothing of an older state behind, so
that no other resynchronisation is needed than to write an object again now and then, which somebody
may have deleted. Must not know how reports are made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from shared.domain.report import Report
from shared.kube.nrt import FINGERPRINT_ANNOTATION, UPDATE_ANNOTATION, to_nrt
from shared.kube.port import Answer, Kube, Lost
from shared.telemetry import names
from shared.telemetry.instruments import count, set_gauge

MIN_GAP_S = 1.0
AGAIN_S = 300.0
BACKOFF_S = (1.0, 2.0, 5.0, 10.0, 30.0)
_REMEDIES = {
    401: "is the service account's token mounted?",
    403: "grant create and patch on noderesourcetopologies.topology.node.k8s.io (k8s/components/exporter-objects)",
    404: "install the definition: kubectl apply -k k8s/components/noderesourcetopology",
}

Object = dict[str, Any]


class Objects:
    """The newest report of each node on its way to the API server. `said(problem)` hears the first
    failure of a row, and "" at its end. `taken` says whether the last write succeeded, None before
    the first."""

    def __init__(self, kube: Kube, owner: bool, said: Callable[[str], None]) -> None:
        self._kube = kube
        self._owner = owner
        self._said = said
        self._waiting: dict[str, Object] = {}
        self._written: dict[str, tuple[float, bytes]] = {}
        self._owners: dict[str, list[Object]] = {}
        self._filled = asyncio.Event()
        self._failed = 0
        self.taken: bool | None = None

    def put(self, report: Report, update: str) -> None:
        """Queue the newest report of a node; `update` is `periodic` or `reactive`, as RTE annotates
        its writes.
        """
        self._waiting[report.node] = to_nrt(report, update)
        self._filled.set()

    async def run(self) -> None:
        """Write for ever; ends by cancellation."""
        while True:
            await self._filled.wait()
            self._filled.clear()
            await self.flush()
            await asyncio.sleep(
                BACKOFF_S[min(self._failed, len(BACKOFF_S)) - 1] if self._failed else MIN_GAP_S
            )

    async def flush(self) -> bool:
        """Write what waits, each object once; whether all of it was taken."""
        for node in list(self._waiting):
            await self._write(node, self._waiting.pop(node))
        return not self._waiting

    async def _write(self, node: str, made: Object) -> None:
        now_s = asyncio.get_running_loop().time()
        at_s, before = self._written.get(node, (-AGAIN_S, b""))
        content = _content(made)
        if content == before and now_s - at_s < AGAIN_S:
            return
        answer = await self._kube.apply_topology(node, await self._owned(node, made))
        took_ms = (asyncio.get_running_loop().time() - now_s) * 1000
        set_gauge(
            names.RTE_OPERATION_DELAY,
            took_ms,
            node=node,
            operation_name="node_resource_object_update",
            trigger="reactive",
        )
        if isinstance(answer, Answer) and answer.ok:
            trigger = made["metadata"]["annotations"][UPDATE_ANNOTATION]
            count(
                names.RTE_WRITES,
                node=node,
                operation="update" if before else "create",
                trigger=trigger,
            )
            self._written[node] = now_s, content
            self._succeeded()
        else:
            self._waiting.setdefault(node, made)
            self._filled.set()
            self._refused(node, answer)

    async def _owned(self, node: str, made: Object) -> Object:
        """The object owned by its Node, so that it goes with it; without an owner where the Node
        cannot be read.
        """
        if self._owner and node not in self._owners:
            found = await self._kube.get_node(node)
            if isinstance(found, Answer) and found.ok:
                uid = (found.body.get("metadata") or {}).get("uid", "")
                self._owners[node] = [
                    {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}
                ]
        if node not in self._owners:
            return made
        return {**made, "metadata": {**made["metadata"], "ownerReferences": self._owners[node]}}

    def _succeeded(self) -> None:
        count(names.EXPORTER_OBJECTS, result="written")
        if self._failed:
            self._said("")
        self._failed = 0
        self.taken = True

    def _refused(self, node: str, answer: Answer | Lost) -> None:
        count(names.EXPORTER_OBJECTS, result="failed")
        self._failed += 1
        self.taken = False
        self._owners.pop(node, None)
        if self._failed == 1:
            self._said(_problem(node, answer))


def _content(made: Object) -> bytes:
    """What a write is about: the annotation that says why it came is none of it."""
    annotations = made["metadata"]["annotations"]
    return msgspec.json.encode(
        [annotations.get(FINGERPRINT_ANNOTATION), made.get("attributes"), made["zones"]]
    )


def _problem(node: str, answer: Answer | Lost) -> str:
    if isinstance(answer, Lost):
        return f"noderesourcetopologies/{node}: {answer.message}"
    remedy = _REMEDIES.get(answer.status, "see what the API server says")
    return (
        f"noderesourcetopologies/{node}: answered {answer.status} {answer.message[:200]}; {remedy}"
    )
