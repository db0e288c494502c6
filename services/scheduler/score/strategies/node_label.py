"""A node's own wish for its strategy: the label `node.koordinator.sh/numa-allocate-strategy`.

The label speaks of Koordinator's used-zone strategies, whose default is MostAllocated (proposal
20230415); it is heeded only where one of them is configured. `DistributeEvenly` is a defined value
that nobody implements.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

LABEL = "node.koordinator.sh/numa-allocate-strategy"
DEFAULT = "KoordinatorMostAllocated"
_BY_VALUE = {
    "MostAllocated": "KoordinatorMostAllocated",
    "LeastAllocated": "KoordinatorLeastAllocated",
}


class Choice(msgspec.Struct, frozen=True):
    """The strategy's name, and what is wrong with the label (empty: nothing) when the fallback had
    to serve.
    """

    strategy: str
    problem: str = ""


def strategy_for(labels: Mapping[str, str], configured: str = DEFAULT) -> Choice:
    """The strategy that scores a node with these labels, given the configured one."""
    value = labels.get(LABEL, "")
    if configured not in _BY_VALUE.values() or not value:
        return Choice(configured)
    if value in _BY_VALUE:
        return Choice(_BY_VALUE[value])
    wanted = " or ".join(sorted(_BY_VALUE))
    return Choice(
        configured, f"label {LABEL}={value} is not implemented; set it to {wanted}, or remove it"
    )
