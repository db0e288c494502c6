"""Decide whether a node's NodeResourceTopology object is written, deleted or left alone.

Each object has one writer: an object of another exporter is never changed. This module must not
know the API, the log or a clock: times arrive as numbers.
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

# Where an unconfirmed pod is subtracted: in every zone where it may land, in every zone, or
# nowhere.
Pessimism = Literal["ledger", "overreserve", "none"]

Object = dict[str, Any]


class Present(msgspec.Struct, frozen=True):
    """An object on the API server. `content` is its digest if it is ours."""

    uid: str
    resource_version: str
    ours: bool
    content: int = 0


class Write(msgspec.Struct, frozen=True):
    """Apply the object. With `force` it replaces our own object, and carries the version that was
    seen."""

    object: Object
    force: bool


class Remove(msgspec.Struct, frozen=True):
    """Delete the object at the version that was seen."""

    uid: str
    resource_version: str


class Terms(msgspec.Struct, frozen=True):
    """The mirror's settings. The object of an expired node is deleted after `keep_expired_s`."""

    pessimism: Pessimism = "ledger"
    keep_expired_s: float = 300.0


def wanted(
    node: LedgerNode | None, silent_since_us: int, now_us: int, terms: Terms
) -> Object | None:
    """Return the object that a node should have, or None for a node that was deleted, never
    reported, or expired too long ago. `silent_since_us` is the time of its last report if it has
    expired."""
    if node is None or node.observed is None or node.report is None or node.report.source != "bus":
        return None
    if node.expired and now_us - silent_since_us > terms.keep_expired_s * 1e6:
        return None
    since = _rfc3339(silent_since_us) if node.expired else ""
    return mirrored(
        _with_placements(node, node.report),
        view(node, terms.pessimism),
        node.observed.uid,
        terms.pessimism,
        since,
    )


def _with_placements(node: LedgerNode, report: Report) -> Report:
    """Return the report with its placements, which the ledger keeps separately. Placements of init
    containers are left out: readers compare their number with the containers of the pods' specs."""
    if node.listed is None:
        return msgspec.structs.replace(report, placements=None)
    init_containers = {
        (charge.key, demand.name)
        for charge in node.charges.values()
        for demand in charge.demand
        if demand.kind == "init"
    }
    placements = [
        placement
        for key, listed in node.listed.items()
        for placement in listed
        if (key, placement.container) not in init_containers
    ]
    return msgspec.structs.replace(report, placements=tuple(placements))


def view(node: LedgerNode, pessimism: Pessimism) -> ZoneAmounts:
    """Return the free amounts of each zone. They may be negative if charges overlap."""
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
    """Return the call that turns the present object into the wanted one, or None."""
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
