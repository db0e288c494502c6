"""Two conditions of the exporter's own pod, as RTE writes them.

PodresourcesFetched is true if the last scan of every node succeeded, NodeTopologyUpdated if the
last report was accepted. Written on change, and retried until the API server accepts them. Must not
know how scans are made or where reports go.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from shared.kube.port import Answer, Kube, Lost

LOOK_S = 1.0
BACKOFF_S = (1.0, 2.0, 5.0, 10.0, 30.0)
_REMEDIES = {
    401: "check that the service account's token is mounted",
    403: "grant patch on pods/status (k8s/components/exporter-readiness)",
    404: "check that REFERENCE_NAMESPACE and REFERENCE_POD_NAME name this pod",
}


class State(msgspec.Struct, frozen=True):
    """The state of both conditions; None while it is unknown."""

    fetched: bool | None = None
    updated: bool | None = None


class Pod(msgspec.Struct, frozen=True):
    """The pod with the conditions."""

    namespace: str
    name: str


class PodReadiness:
    """Writes the conditions of `state()`.

    Calls `on_problem(problem)` at the first failure of a row, and with "" at its end.
    """

    def __init__(
        self, kube: Kube, pod: Pod, state: Callable[[], State], on_problem: Callable[[str], None]
    ) -> None:
        self._kube = kube
        self._pod = pod
        self._state = state
        self._on_problem = on_problem
        self._written = State()
        self._failed = 0

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            await self.write()
            backoff_s = BACKOFF_S[min(self._failed, len(BACKOFF_S)) - 1]
            await asyncio.sleep(backoff_s if self._failed else LOOK_S)

    async def write(self) -> None:
        """Write the conditions that changed."""
        state = self._state()
        changed = _conditions(self._written, state)
        if not changed:
            return
        stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        conditions = [{**condition, "lastTransitionTime": stamp} for condition in changed]
        patch = {"status": {"conditions": conditions}}
        answer = await self._kube.patch_pod_status(self._pod.namespace, self._pod.name, patch)
        if isinstance(answer, Answer) and answer.ok:
            self._written = state
            if self._failed:
                self._on_problem("")
            self._failed = 0
            return
        self._failed += 1
        if self._failed == 1:
            self._on_problem(self._problem(answer))

    def _problem(self, answer: Answer | Lost) -> str:
        where = f"pods/{self._pod.name} in {self._pod.namespace}"
        if isinstance(answer, Lost):
            return f"{where}: {answer.message}"
        remedy = _REMEDIES.get(answer.status, "see the API server's message")
        message = " ".join(answer.message[:200].split())
        return f"{where}: status answered {answer.status} {message}; {remedy}"


def _conditions(before: State, state: State) -> list[dict[str, Any]]:
    """Return the changed conditions with RTE's reasons and messages."""
    changed = []
    if state.fetched is not None and state.fetched != before.fetched:
        message = "failed to scan pod resources"
        changed.append(_condition("PodresourcesFetched", state.fetched, "ScanFailed", message))
    if state.updated is not None and state.updated != before.updated:
        message = "failed to update noderesourcetopology object"
        changed.append(_condition("NodeTopologyUpdated", state.updated, "UpdateFailed", message))
    return changed


def _condition(kind: str, good: bool, reason: str, message: str) -> dict[str, Any]:
    # A merge patch keeps absent fields, so None removes an old reason.
    return {
        "type": kind,
        "status": "True" if good else "False",
        "reason": None if good else reason,
        "message": None if good else message,
    }
