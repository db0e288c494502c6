"""Folding reports: the newest report of a node becomes current, and every charge is held against
it.
"""

from __future__ import annotations

from collections.abc import Container

import msgspec

from shared.domain.report import Placement, Report, Zone, ZoneResource
from shared.events.report_events import NodeReportChanged, NodeReported
from shared.ledger.nodes import forget_ended, node_of
from shared.ledger.recompute import forget_places, recompute, redemand
from shared.ledger.state import Ended, Expectation, Ledger, LedgerNode
from shared.ledger.unhealthy import ever_in_zones, unlisted

ENDED_LACKING_REPORTS = 3
"""How many reports without an ended pod's name before the name is forgotten: late reports may still bring it."""


def reported(ledger: Ledger, event: NodeReported, version: int, position: int) -> str:
    """Take in a full report; returns the node's name."""
    report = event.report
    node = node_of(ledger, report.node)
    node.listed = None if report.placements is None else by_key(report.placements)
    bare = msgspec.structs.replace(report, placements=None)
    node.unlisted_devices = unlisted(node.report, node.unlisted_devices, report)
    node.resources_in_zones = ever_in_zones(node.report, node.resources_in_zones, report)
    moved = node.report is None or not _same_shape(node.report, bare)
    _current(ledger, node, bare, version, position, moved)
    recompute(node)
    return report.node


def changed(ledger: Ledger, event: NodeReportChanged, version: int, position: int) -> str:
    """Take in what changed since the report before it, which a delta leaves in shape; returns the
    node's name.
    """
    node = node_of(ledger, event.node)
    before = node.report
    if before is None:
        return event.node
    anew: set[str] | None = None
    if node.listed is not None:
        new = by_key(event.listed)
        node.listed = {
            key: placements for key, placements in node.listed.items() if key not in event.unlisted
        } | new
        anew = {*event.unlisted, *new}
    moved = _current(
        ledger,
        node,
        _changed_report(before, event),
        version,
        position,
        before.boot_id != event.boot_id,
    )
    recompute(
        node, None if moved else anew, event.hidden is not None or event.checkpoints is not None
    )
    return event.node


def apply_change(report: Report, event: NodeReportChanged) -> Report:
    """The full report, placements included, after a delta."""
    listed = by_key(report.placements or ())
    listed = {
        key: placements for key, placements in listed.items() if key not in event.unlisted
    } | by_key(event.listed)
    placements = (
        None
        if report.placements is None
        else tuple(p for key in sorted(listed) for p in listed[key])
    )
    return msgspec.structs.replace(_changed_report(report, event), placements=placements)


def _changed_report(report: Report, event: NodeReportChanged) -> Report:
    return msgspec.structs.replace(
        report,
        boot_id=event.boot_id,
        boot_time_ms=event.boot_time_ms,
        exporter=event.exporter,
        fingerprint=event.fingerprint,
        zones=tuple(_changed_zone(zone, event) for zone in report.zones),
        checkpoints=report.checkpoints if event.checkpoints is None else event.checkpoints,
        hidden=report.hidden if event.hidden is None else event.hidden,
    )


def by_key(placements: tuple[Placement, ...]) -> dict[str, tuple[Placement, ...]]:
    """Placements by `namespace/name` of their pod, in order of name."""
    found: dict[str, list[Placement]] = {}
    for placement in placements:
        found.setdefault(f"{placement.namespace}/{placement.pod}", []).append(placement)
    return {key: tuple(found[key]) for key in sorted(found)}


def _changed_zone(zone: Zone, event: NodeReportChanged) -> Zone:
    available, free, group = (
        event.available.get(zone.id, {}),
        event.free.get(zone.id),
        event.groups.get(zone.id),
    )
    if not available and free is None and group is None:
        return zone
    resources = dict(zone.resources)
    for name, amount in available.items():
        if name in resources:
            resources[name] = ZoneResource(
                resources[name].capacity, resources[name].allocatable, amount
            )
    free, group = zone.free if free is None else free, zone.group if group is None else group
    return msgspec.structs.replace(zone, resources=resources, free=free, group=group)


def _current(
    ledger: Ledger, node: LedgerNode, report: Report, version: int, position: int, moved: bool
) -> bool:
    """The report counts from here on; returns whether nothing of what was known of pods' places
    does any more, as it has another shape or an operator said so."""
    moved = moved or node.released
    node.report, node.report_version, node.report_position = report, version, position
    node.expired, node.locked, node.released = False, "", False
    if node.listed is not None or moved:
        node.basis = report
    if moved:
        _moved(ledger, node, position)
    _forget_ended(node)
    return moved


def _same_shape(one: Report, other: Report) -> bool:
    """What must not change for a pod's last proven zones to stay true: boot, policy, managers and
    zones.
    """
    return (
        one.boot_id == other.boot_id
        and (one.policy, one.scope, one.options, one.tracked)
        == (other.policy, other.scope, other.options, other.tracked)
        and len(one.zones) == len(other.zones)
        and all(map(_same_zone, one.zones, other.zones))
    )


def _same_zone(one: Zone, other: Zone) -> bool:
    return one.id == other.id and one.resources.keys() == other.resources.keys()


def _moved(ledger: Ledger, node: LedgerNode, position: int) -> None:
    for uid, charge in node.charges.items():
        redemand(node, charge, ledger.pods[uid])
    forget_places(node)
    node.freed, node.departed, node.confirmed_to = [], {}, 0
    pods = tuple(sorted((charge.key, charge.uid) for charge in node.charges.values()))
    node.history = [] if node.listed is not None else [Expectation(position, pods)]


def _forget_ended(node: LedgerNode) -> None:
    """Of a name that the report does not list nothing is left that ended before the report was
    made. Where nobody knows when that was, several reports tell."""
    if node.listed is None or not node.ended:
        return
    made_after = _made_after(node, node.listed)
    for key in list(node.ended):
        ended = node.ended[key]
        if key in node.listed:
            ended.lacking = 0
            continue
        ended.lacking += 1
        if ended.lacking >= ENDED_LACKING_REPORTS or _was_there_before(ended, made_after):
            forget_ended(node, key)


def _made_after(node: LedgerNode, listed: Container[str]) -> int:
    """A position after which the report was made: whoever it lists had been sent. Names that
    several bear tell nothing.
    """
    live = {charge.key for charge in node.charges.values()}
    sent = [
        charge.sent_at
        for charge in node.charges.values()
        if charge.alias is None and charge.key in listed
    ]
    ended = [
        each.lives or () for key, each in node.ended.items() if key in listed and key not in live
    ]
    return max([*sent, *(lives[0].sent_at for lives in ended if len(lives) == 1)], default=0)


def _was_there_before(ended: Ended, position: int) -> bool:
    """Everybody of the name had come by then, as it was heard to run or to have ended."""
    return ended.lives is not None and all(
        min(life.runs_at or life.ended_at, life.ended_at) <= position for life in ended.lives
    )
