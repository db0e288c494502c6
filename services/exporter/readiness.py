"""Two conditions of the exporter's own pod, as resource-topology-exporter writes them: whether the
last scan of every node succeeded, and whether what was scanned was taken where it goes. Written
when they change; tried again until they are taken.

Must not know how scans are made or where reports go.
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
    401: "is the service account's token mounted?",
    403: "grant patch on pods/status (k8s/components/exporter-readiness)",
    404: "do REFERENCE_NAMESPACE and REFERENCE_POD_NAME name this pod?",
}


class State(msgspec.Struct, frozen=True):
    """What holds now; None while nobody can tell yet."""

    fetched: bool | None = None
    updated: bool | None = None


class Pod(msgspec.Struct, frozen=True):
    """Whose conditions they are."""

    namespace: str
    name: str


class PodReadiness:
    """Writes what `state()` says. `said(problem)` hears the first failure of a row, and "" at its
    end.
    """

    def __init__(
        self, kube: Kube, pod: Pod, state: Callable[[], State], said: Callable[[str], None]
    ) -> None:
        self._kube = kube
        self._pod = pod
        self._state = state
        self._said = said
        self._written = State()
        self._failed = 0

    async def run(self) -> None:
        """Write for ever; ends by cancellation."""
        while True:
            await self.write()
            await asyncio.sleep(
                BACKOFF_S[min(self._failed, len(BACKOFF_S)) - 1] if self._failed else LOOK_S
            )

    async def write(self) -> None:
        """Write the conditions that changed."""
        state = self._state()
        changed = _conditions(self._written, state)
        if not changed:
            return
        stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        patch = {
            "status": {"conditions": [{**each, "lastTransitionTime": stamp} for each in changed]}
        }
        answer = await self._kube.patch_pod_status(self._pod.namespace, self._pod.name, patch)
        if isinstance(answer, Answer) and answer.ok:
            self._written = state
            if self._failed:
                self._said("")
            self._failed = 0
            return
        self._failed += 1
        if self._failed == 1:
            self._said(self._problem(answer))

    def _problem(self, answer: Answer | Lost) -> str:
        where = f"pods/{self._pod.name} in {self._pod.namespace}"
        if isinstance(answer, Lost):
            return f"{where}: {answer.message}"
        remedy = _REMEDIES.get(answer.status, "see what the API server says")
        said = " ".join(answer.message[:200].split())
        return f"{where}: status answered {answer.status} {said}; {remedy}"


def _conditions(before: State, now: State) -> list[dict[str, Any]]:
    """resource-topology-exporter's words."""
    found = []
    if now.fetched is not None and now.fetched != before.fetched:
        found.append(
            _condition(
                "PodresourcesFetched", now.fetched, "ScanFailed", "failed to scan pod resources"
            )
        )
    if now.updated is not None and now.updated != before.updated:
        told = "failed to update noderesourcetopology object"
        found.append(_condition("NodeTopologyUpdated", now.updated, "UpdateFailed", told))
    return found


def _condition(kind: str, good: bool, reason: str, message: str) -> dict[str, Any]:
    """A merged condition keeps what it is not told anew: a good one takes an old reason away."""
    return {
        "type": kind,
        "status": "True" if good else "False",
        "reason": None if good else reason,
        "message": None if good else message,
    }
