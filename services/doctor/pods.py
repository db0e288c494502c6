"""Judge the pods that wait: for a zone, although some node as a whole has room. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from services.doctor.finding import Finding, warning
from services.scheduler.state.totals import zone_waits
from shared.ledger.state import Ledger

ABOUT = "pods"


def judge(ledger: Ledger) -> Iterator[Finding]:
    """Yield a warning for each resource and request, the most frequent first."""
    waits = sorted(zone_waits(ledger).items(), key=lambda item: (-item[1], item[0]))
    for (resource, request), count in waits:
        yield warning(
            ABOUT,
            f"{count} pod(s) wait for a zone, not for a node: {resource} (they request {request})",
            "topolog replay explain POD shows the zones and what must be freed; a cluster "
            "autoscaler does not see zones and adds no node for such pods",
        )
