"""Judge the pods that wait: for a zone, although some node as a whole has room. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from services.doctor.finding import Finding, warning
from services.scheduler.explain.empty_nodes import EmptyNodes
from services.scheduler.snapshot.config import CycleConfig
from shared.ledger.state import Ledger

ABOUT = "pods"


def judge(ledger: Ledger, cycle: CycleConfig) -> Iterator[Finding]:
    """Yield a warning for each resource, request and node type, the most frequent first."""
    waits = EmptyNodes(cycle).zone_waits(ledger)
    for (resource, request, node_type), count in sorted(
        waits.items(), key=lambda item: (-item[1], item[0])
    ):
        seen = (
            f"{count} pod(s) wait for a zone, not for a node: {resource} (they request {request}); "
        )
        if node_type:
            seen += f"each would fit on an empty node of type {node_type}"
            remedy = (
                f"add a node of type {node_type}: a cluster autoscaler does not see zones and adds "
                "none for such pods; or make room: topolog plan defragment --for POD"
            )
        else:
            seen += "no empty node of a type in this cluster would take one"
            remedy = "topolog replay explain POD shows the zones; request less, or add larger nodes"
        yield warning(ABOUT, seen, remedy)
