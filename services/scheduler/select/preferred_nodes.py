"""Nodes that one of several schedulers tries first, so that two of them seldom reserve on one node
at once.

Its own nodes come before all others, whatever they score; where none of them takes the pod, the
others do. A pod that prefers nodes itself is not asked to prefer others. Must not know who shares
with whom.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from services.scheduler.snapshot.columnar import Lifts
from services.scheduler.snapshot.node_info import NodeInfo

ABROAD = -1_000
"""Below every score, above being barred."""


class Homes:
    """Lifts by slot; None while every node is one's own."""

    def __init__(self) -> None:
        self._has: Callable[[str], bool] | None = None
        self._lifts: Lifts | None = None

    def share(self, has: Callable[[str], bool] | None) -> None:
        """Prefer the nodes of which `has` is true; None prefers none."""
        self._has, self._lifts = has, None

    def entered(self) -> None:
        """Another node stands in some slot."""
        self._lifts = None

    def lifts(self, slots: Sequence[NodeInfo | None]) -> Lifts | None:
        """What the nodes' scores are lifted by."""
        if self._has is None:
            return None
        if self._lifts is None:
            found = [
                0 if node_info is not None and self._has(node_info.name) else ABROAD
                for node_info in slots
            ]
            self._lifts = np.array(found, dtype=np.int32)
        return self._lifts
