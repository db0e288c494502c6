"""The startup taint: taken from a node once its report is there, so that pods of any scheduler wait
for it.

Off unless a taint is named. Takes nothing else from a node, and never puts the taint there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shared.kube.port import Answer, Kube, Lost
from shared.ledger.state import Ledger, LedgerNode
from shared.runtime.clock import Clock
from shared.telemetry import logs, names

TICK_S = 1.0
AT_ONCE = 20
"""At most so many nodes a tick."""


class StartupTaint:
    """`ledger` gives the fold as it is now, None while it has not caught up."""

    def __init__(
        self, kube: Kube, clock: Clock, key: str, ledger: Callable[[], Ledger | None]
    ) -> None:
        self._kube = kube
        self._clock = clock
        self._key = key
        self._ledger = ledger
        self._out = logs.get("startup taint")

    async def run(self) -> None:
        """Take taints away until cancelled."""
        while True:
            await self._clock.sleep(TICK_S)
            await self.sweep()

    async def sweep(self) -> None:
        """One look at all nodes."""
        ledger = self._ledger()
        found = (
            []
            if ledger is None
            else [(name, patch_for(node, self._key)) for name, node in ledger.nodes.items()]
        )
        for name, patch in [(name, patch) for name, patch in found if patch][:AT_ONCE]:
            answer = await self._kube.patch_node(name, patch)
            if isinstance(answer, Answer) and answer.ok:
                self._out.info(names.TAINT_REMOVED, node=name, taint=self._key)
            else:
                problem = (
                    answer.message
                    if isinstance(answer, Lost)
                    else f"HTTP {answer.status} {answer.message}"
                )
                self._out.warning(
                    names.TAINT_NOT_REMOVED, node=name, taint=self._key, problem=problem
                )


def patch_for(node: LedgerNode, key: str) -> list[dict[str, Any]]:
    """The JSON patch (RFC 6902) that takes the taint from where it was seen, and nothing when
    another is there by now; empty when there is nothing to take, or no report yet."""
    if node.observed is None or node.report is None or node.expired:
        return []
    places = [place for place, taint in enumerate(node.observed.taints) if taint.key == key]
    if not places:
        return []
    path = f"/spec/taints/{places[0]}"
    return [{"op": "test", "path": f"{path}/key", "value": key}, {"op": "remove", "path": path}]
