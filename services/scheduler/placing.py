"""What the core asks of whoever chooses nodes: the columnar cluster by default, the upstream plugin's caches where asked for.

An implementation is told of every fact and of each node that a fact touched; it keeps what it needs and decides on no clock.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from services.scheduler.cycle.cluster import Cluster
from services.scheduler.cycle.outcome import Placed, Unplaceable
from shared.domain.pod import Pod
from shared.events.catalog import Fact
from shared.ledger.state import LedgerNode, ZoneAmounts


class Placing(Protocol):
    """Nodes in, places out. Single-threaded."""

    one_by_one: bool
    """True where a reservation counts only once its fact was folded: the next pod must wait for that."""

    def hear(self, fact: Fact) -> None:
        """A fact was folded."""

    def put_node(self, node: LedgerNode) -> None:
        """Insert or refresh a node from the ledger. Own reservations that the ledger lacks are forgotten."""

    def drop_node(self, name: str) -> None:
        """Forget a node."""

    def place(self, pod: Pod) -> Placed | Unplaceable:
        """A node for the pod, or why there is none."""

    def charge(self, placed: Placed, pod: Pod) -> ZoneAmounts:
        """Stand in for an own reservation until the fold brings it; the charge as the fold will compute it."""

    def waiting_could_fit(self, pod: Pod, nodes: Collection[str]) -> bool:
        """Could one of these nodes, which changed, take the pod now?"""

    def shape_of(self, pod: Pod) -> str:
        """Pods of one shape share their verdicts."""

    def unsettled(self) -> list[str]:
        """Nodes that carry charges whose zones are not known."""

    def tick(self) -> bool:
        """The resync period went by; True when waiting pods may fit now."""


class ColumnarPlacing(Cluster):
    """The default: the ledger's own view in columns. It learns from nodes alone, and has nothing to resync."""

    one_by_one = False

    def hear(self, fact: Fact) -> None:
        """The ledger's nodes say it all."""

    def tick(self) -> bool:
        """Nothing waits for a clock."""
        return False
