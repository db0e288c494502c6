"""Hugepages that the Memory Manager keeps a table of in some zones, and none in others.

It looks into the table of every zone for every Guaranteed container that names them, in an amount
of 0, too, and the kubelet ends by a nil pointer where one lacks it, again at each start while the
pod is bound there. So it is with zones for which the kernel has no folder of hugepages, as those
without memory may be. Only the checkpoint tells: elsewhere a zone without pages of a size looks
like one without a table. Source: kubelet 1.36, memorymanager (calculateHints), executed.
"""

from __future__ import annotations

from services.scheduler.filter.constraints.constraint import Bar
from shared.domain.refusal import Reason
from shared.domain.resources import is_hugepages
from shared.ledger.state import LedgerNode

_BAR = Bar(
    Reason.KUBELET_FAILS,
    "as a zone keeps no table of it",
    "ask for hugepages of another size there, or run it on a node whose kernel has them in every zone",
    "names, Guaranteed",
)


def bars(node: LedgerNode) -> dict[str, Bar]:
    """By resource; of nodes whose Memory Manager's own figures are known."""
    tables = [
        zone.free.keys()
        for zone in (node.basis.zones if node.basis is not None else ())
        if zone.free
    ]
    if all(names == tables[0] for names in tables):  # of nearly every node, at each of its changes
        return {}
    everywhere = set(tables[0]).intersection(*tables)
    return {name: _BAR for name in sorted(set().union(*tables) - everywhere) if is_hugepages(name)}
