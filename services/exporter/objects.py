"""NodeResourceTopology objects that the node writes itself, as RTE does.

They are written on change, at a bounded rate, by server-side apply, which creates and changes in
one call and leaves nothing of an older state. They are also written again periodically, because an
object may have been deleted. Must not know how reports are made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from shared.domain.report import Report
from shared.kube.nrt import FINGERPRINT_ANNOTATION, UPDATE_ANNOTATION, to_nrt
from shared.kube.port import Answer, Kube, Lost
from shared.telemetry import exporter_names
from shared.telemetry.instruments import count, set_gauge

MIN_GAP_S = 1.0
AGAIN_S = 300.0
BACKOFF_S = (1.0, 2.0, 5.0, 10.0, 30.0)
_REMEDIES = {
    401: "check that the service account's token is mounted",
    403: "grant create and patch on noderesourcetopologies.topology.node.k8s.io "
    "(k8s/components/exporter-objects)",
    404: "install the definition: kubectl apply -k k8s/components/noderesourcetopology",
}

Object = dict[str, Any]


class Objects:
    """Writes the newest report of each node to the API server.

    Calls `on_problem(problem)` at the first of several failures in a row, and with "" when they
    end. `accepted` is True if the last write succeeded, None before the first.
    """

    def __init__(self, kube: Kube, owner: bool, on_problem: Callable[[str], None]) -> None:
        self._kube = kube
        self._owner = owner
        self._on_problem = on_problem
        self._waiting: dict[str, Object] = {}
        self._written: dict[str, tuple[float, bytes]] = {}
        self._owners: dict[str, list[Object]] = {}
        self._filled = asyncio.Event()
        self._failed = 0
        self.accepted: bool | None = None

    def put(self, report: Report, update: str) -> None:
        """Queue the newest report of a node; `update` is RTE's annotation, periodic or reactive."""
        self._waiting[report.node] = to_nrt(report, update)
        self._filled.set()

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            await self._filled.wait()
            self._filled.clear()
            await self.flush()
            backoff_s = BACKOFF_S[min(self._failed, len(BACKOFF_S)) - 1]
            await asyncio.sleep(backoff_s if self._failed else MIN_GAP_S)

    async def flush(self) -> bool:
        """Write each queued object once; return True if all were accepted."""
        for node in list(self._waiting):
            await self._write(node, self._waiting.pop(node))
        return not self._waiting

    async def _write(self, node: str, wanted: Object) -> None:
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        written_s, written = self._written.get(node, (-AGAIN_S, b""))
        content = _content(wanted)
        if content == written and now_s - written_s < AGAIN_S:
            return
        answer = await self._kube.apply_topology(node, await self._with_owner(node, wanted))
        set_gauge(
            exporter_names.RTE_OPERATION_DELAY,
            (loop.time() - now_s) * 1000,
            node=node,
            operation_name="node_resource_object_update",
            trigger="reactive",
        )
        if isinstance(answer, Answer) and answer.ok:
            trigger = wanted["metadata"]["annotations"][UPDATE_ANNOTATION]
            operation = "update" if written else "create"
            count(exporter_names.RTE_WRITES, node=node, operation=operation, trigger=trigger)
            self._written[node] = now_s, content
            self._succeeded()
        else:
            self._waiting.setdefault(node, wanted)
            self._filled.set()
            self._refused(node, answer)

    async def _with_owner(self, node: str, wanted: Object) -> Object:
        """Return the object owned by its Node, so that it is deleted with it.

        Without an owner if the Node cannot be read.
        """
        if self._owner and node not in self._owners:
            answer = await self._kube.get_node(node)
            if isinstance(answer, Answer) and answer.ok:
                uid = (answer.body.get("metadata") or {}).get("uid", "")
                owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}
                self._owners[node] = [owner]
        if node not in self._owners:
            return wanted
        return {**wanted, "metadata": {**wanted["metadata"], "ownerReferences": self._owners[node]}}

    def _succeeded(self) -> None:
        count(exporter_names.EXPORTER_OBJECTS, result="written")
        if self._failed:
            self._on_problem("")
        self._failed = 0
        self.accepted = True

    def _refused(self, node: str, answer: Answer | Lost) -> None:
        count(exporter_names.EXPORTER_OBJECTS, result="failed")
        self._failed += 1
        self.accepted = False
        self._owners.pop(node, None)
        if self._failed == 1:
            self._on_problem(_problem(node, answer))


def _content(wanted: Object) -> bytes:
    """Return the compared part; the annotation with the reason for the write is left out."""
    annotations = wanted["metadata"]["annotations"]
    return msgspec.json.encode(
        [annotations.get(FINGERPRINT_ANNOTATION), wanted.get("attributes"), wanted["zones"]]
    )


def _problem(node: str, answer: Answer | Lost) -> str:
    name = f"noderesourcetopologies/{node}"
    if isinstance(answer, Lost):
        return f"{name}: {answer.message}"
    remedy = _REMEDIES.get(answer.status, "see the API server's message")
    return f"{name}: answered {answer.status} {answer.message[:200]}; {remedy}"
