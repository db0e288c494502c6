"""Numbers of a ledger's nodes for people. Must not know deciding."""

from __future__ import annotations

from shared.ledger.state import LedgerNode


def is_unnamed(node: LedgerNode) -> bool:
    """Whether an exporter reports it and no Node object has the name."""
    return node.observed is None and not node.charges and node.report is not None and not node.expired


def zones_in_use(node: LedgerNode) -> int:
    """Zones in which something is held or charged."""
    if node.report is None:
        return 0
    return sum(
        any(held.allocatable > node.lower.get(zone.id, {}).get(name, 0) for name, held in zone.resources.items())
        for zone in node.report.zones
    )
