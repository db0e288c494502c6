"""Remove the startup taint from a node once it has reported, so that pods of any scheduler wait
for it.

Off without a configured taint. Removes no other taint, and never adds one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shared.kube.port import Answer, Kube, Lost
from shared.ledger.state import Ledger, LedgerNode
from shared.runtime.clock import Clock
from shared.telemetry import logs, names

TICK_S = 1.0
# At most so many nodes in a tick.
AT_ONCE = 20


class StartupTaint:
    """`ledger` returns the fold, or None while it has not caught up."""

    def __init__(
        self, kube: Kube, clock: Clock, key: str, ledger: Callable[[], Ledger | None]
    ) -> None:
        self._kube = kube
        self._clock = clock
        self._key = key
        self._ledger = ledger
        self._out = logs.get("startup taint")

    async def run(self) -> None:
        while True:
            await self._clock.sleep(TICK_S)
            await self.sweep()

    async def sweep(self) -> None:
        ledger = self._ledger()
        if ledger is None:
            return
        patches = {name: patch_for(node, self._key) for name, node in ledger.nodes.items()}
        due = [(name, patch) for name, patch in patches.items() if patch]
        for name, patch in due[:AT_ONCE]:
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
    """Return the JSON patch (RFC 6902) that removes the taint, empty without taint or report. Its
    test fails if another taint is at that place by now."""
    if node.observed is None or node.report is None or node.expired:
        return []
    indexes = [index for index, taint in enumerate(node.observed.taints) if taint.key == key]
    if not indexes:
        return []
    path = f"/spec/taints/{indexes[0]}"
    return [{"op": "test", "path": f"{path}/key", "value": key}, {"op": "remove", "path": path}]
