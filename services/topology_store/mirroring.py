"""Deciding what becomes of a node's NodeResourceTopology object: written, deleted, or let be.

One writer an object: what another exporter publishes is never touched. This module must not know
the API, the log or a clock: times arrive as numbers.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from shared.domain.demand import peak
from shared.domain.report import Report
from shared.kube.nrt_mirrored import content, mirrored
from shared.ledger.state import LedgerNode, ZoneAmounts
from shared.ledger.view import restore, subtract

Pessimism = Literal["ledger", "overreserve", "none"]
"""What of the pods that no report proves yet is taken off: every zone where each may land, every zone, or nothing."""

Object = dict[str, Any]


class Present(msgspec.Struct, frozen=True):
    """An object as it stands on the API server; `content` is its digest where it is ours."""

    uid: str
    resource_version: str
    ours: bool
    content: int = 0


class Write(msgspec.Struct, frozen=True):
    """Apply the object. `force` only over our own, at the version that was seen: it carries that
    version then.
    """

    object: Object
    force: bool


class Remove(msgspec.Struct, frozen=True):
    """Delete exactly the object that was seen."""

    uid: str
    resource_version: str


class Terms(msgspec.Struct, frozen=True):
    """How the mirror was configured: an expired node's object is kept for `keep_expired_s` and then
    collected.
    """

    pessimism: Pessimism = "ledger"
    keep_expired_s: float = 300.0


def wanted(
    node: LedgerNode | None, silent_since_us: int, now_us: int, terms: Terms
) -> Object | None:
    """The object that a node should have; None for a node that is gone, never reported, or expired
    for too long.

    `silent_since_us` is when the node was last heard, where its report has expired."""
    if node is None or node.observed is None or node.report is None or node.report.source != "bus":
        return None
    if node.expired and now_us - silent_since_us > terms.keep_expired_s * 1e6:
        return None
    since = _rfc3339(silent_since_us) if node.expired else ""
    return mirrored(
        _whole(node, node.report),
        view(node, terms.pessimism),
        node.observed.uid,
        terms.pessimism,
        since,
    )


def _whole(node: LedgerNode, report: Report) -> Report:
    """The report with its placements, which the ledger keeps apart: those of containers that run,
    since readers compare their number with the pods' specs, where init containers do not count."""
    if node.listed is None:
        return msgspec.structs.replace(report, placements=None)
    inits = {
        (charge.key, each.name)
        for charge in node.charges.values()
        for each in charge.demand
        if each.kind == "init"
    }
    listed = ((key, one) for key, placements in node.listed.items() for one in placements)
    return msgspec.structs.replace(
        report, placements=tuple(one for key, one in listed if (key, one.container) not in inits)
    )


def view(node: LedgerNode, pessimism: Pessimism) -> ZoneAmounts:
    """What is free in each zone; may be negative where charges overlap."""
    if pessimism == "none":
        return {}
    bound = {zone: dict(amounts) for zone, amounts in node.free_min.items()}
    if pessimism == "overreserve":
        for charge in node.charges.values():
            restore(bound, charge.zones)
            if charge.zones:
                subtract(bound, dict.fromkeys(bound, peak(charge.demand)))
    return bound


def step(wanted: Object | None, present: Present | None) -> Write | Remove | None:
    """From what should be and what is to the one call that is needed."""
    if present is not None and not present.ours:
        return None
    if wanted is None:
        return Remove(present.uid, present.resource_version) if present is not None else None
    if present is None:
        return Write(wanted, force=False)
    if content(wanted) == present.content:
        return None
    metadata = {**wanted["metadata"], "resourceVersion": present.resource_version}
    return Write({**wanted, "metadata": metadata}, force=True)


def _rfc3339(time_us: int) -> str:
    return datetime.fromtimestamp(time_us // 1_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
