"""The picture once: as text for a pipe or a screenshot, or as values for JSON."""

from __future__ import annotations

import sys
from typing import Any

from rich.console import Console

from services.top import model
from services.top.cells import CellsPicture
from services.top.draw import draw
from services.top.follow import Follower
from services.top.screen import Screen, Source
from shared.ledger.state import LedgerNode

PIPE_COLUMNS = 120


def picture_once(source: Source, width: int, height: int) -> None:
    """Print the picture of a source."""
    columns = width or (Console().width if sys.stdout.isatty() else PIPE_COLUMNS)
    console = Console(
        highlight=False, width=columns, no_color=None if sys.stdout.isatty() else True
    )
    for line in draw(Screen(console).scene(source), columns, height):
        console.print(line)


def snapshot(follower: Follower | CellsPicture) -> dict[str, Any]:
    """Return nodes, pods, counts and rates, amounts in Topolog's units; by cell if several."""
    if isinstance(follower, CellsPicture):
        return {"cells": {cell: snapshot(each) for cell, each in follower.followers.items()}}
    ledger = follower.ledger
    totals = model.totals_of(ledger, follower.created_us, follower.now_us)
    return {
        "position": ledger.position,
        "head": follower.head,
        "stages": totals.stages,
        "rejected": follower.rejected,
        "rates_per_s": {name: round(rate, 2) for name, rate in follower.rates().items()},
        "nodes": [_node(ledger.nodes[name]) for name in sorted(ledger.nodes)],
        "queue": totals.queue,
        "pods": totals.pods,
    }


def _node(node: LedgerNode) -> dict[str, Any]:
    zones: dict[int, dict[str, Any]] = {}
    for resource in model.resources_of([node]):
        for bar in model.node_row(node, resource).bars:
            amounts = {"used": bar.used, "charged": bar.charged, "free": bar.free}
            zones.setdefault(bar.zone, {})[resource] = amounts
    return {
        "name": node.name,
        "flags": model.flags_of(node),
        "pods": len(node.charges),
        "zones": [{"zone": zone, "resources": zones[zone]} for zone in sorted(zones)],
    }
