"""Fold reports: the newest one becomes current, and every charge is compared with it."""

from __future__ import annotations

from collections.abc import Container

import msgspec

from shared.domain.report import Placement, Report, Zone, ZoneResource
from shared.events.report_events import NodeReportChanged, NodeReported
from shared.ledger.alike import share_zones
from shared.ledger.certainty import check_after_report, check_before_report
from shared.ledger.container_zones import lists_by_match, lists_placements, may_list
from shared.ledger.fingerprints import confirm_containers, container_listing
from shared.ledger.nodes import forget_ended, node_of
from shared.ledger.recompute import forget_places, recompute, redemand
from shared.ledger.since_empty import note_report
from shared.ledger.state import Ended, Expectation, Ledger, LedgerNode
from shared.ledger.unhealthy import ever_in_zones, unlisted

# Reports without an ended pod's name before the name is forgotten. One is not enough, because late
# reports may still list it.
ENDED_LACKING_REPORTS = 3


def reported(ledger: Ledger, event: NodeReported, version: int, position: int) -> str:
    """Fold a full report, and return the node's name."""
    report = event.report
    node = node_of(ledger, report.node)
    share_zones(report)
    bare = msgspec.structs.replace(report, placements=None)
    has_moved = node.report is None or not _same_shape(node.report, bare)
    listed = None
    if report.placements is not None:
        listed = by_key(report.placements)
    elif may_list(node, report) and not (has_moved or lists_placements(node)):
        listed = container_listing(ledger, node, bare)
    check_before_report(ledger, node, bare, listed, has_moved or node.released)
    node.listed = listed
    node.unlisted_devices = unlisted(node.report, node.unlisted_devices, report)
    node.resources_in_zones = ever_in_zones(node.report, node.resources_in_zones, report)
    earlier_position = node.report_position
    _make_current(ledger, node, bare, version, position, has_moved)
    _list_containers(ledger, node, earlier_position)
    recompute(node)
    check_after_report(ledger, node)
    return report.node


def changed(ledger: Ledger, event: NodeReportChanged, version: int, position: int) -> str:
    """Fold a delta, which leaves the report's shape as it is, and return the node's name."""
    node = node_of(ledger, event.node)
    last = node.report
    if last is None:
        return event.node
    names: set[str] | None = None
    listed = node.listed
    report, has_moved = _changed_report(last, event), last.boot_id != event.boot_id
    if lists_by_match(report):
        listed = container_listing(ledger, node, report) if may_list(node, report) else None
    elif listed is not None:
        new = by_key(event.listed)
        listed, names = _changed_listing(listed, event, new), {*event.unlisted, *new}
    check_before_report(ledger, node, report, listed, has_moved or node.released)
    node.listed = listed
    earlier_position = node.report_position
    has_moved = _make_current(ledger, node, report, version, position, has_moved)
    _list_containers(ledger, node, earlier_position)
    hidden_changed = event.hidden is not None or event.checkpoints is not None
    recompute(node, None if has_moved else names, hidden_changed)
    check_after_report(ledger, node)
    return event.node


def apply_change(report: Report, event: NodeReportChanged) -> Report:
    """Return the full report after a delta, with its placements."""
    placements = None
    if report.placements is not None:
        listed = _changed_listing(by_key(report.placements), event, by_key(event.listed))
        placements = tuple([p for key in sorted(listed) for p in listed[key]])
    return msgspec.structs.replace(_changed_report(report, event), placements=placements)


Listing = dict[str, tuple[Placement, ...]]


def _changed_listing(listed: Listing, event: NodeReportChanged, new: Listing) -> Listing:
    kept = {key: placements for key, placements in listed.items() if key not in event.unlisted}
    return kept | new


def _changed_report(report: Report, event: NodeReportChanged) -> Report:
    return msgspec.structs.replace(
        report,
        boot_id=event.boot_id,
        boot_time_ms=event.boot_time_ms,
        exporter=event.exporter or report.exporter,
        fingerprint=event.fingerprint,
        zones=tuple(_changed_zone(zone, event) for zone in report.zones),
        checkpoints=report.checkpoints if event.checkpoints is None else event.checkpoints,
        hidden=report.hidden if event.hidden is None else event.hidden,
        container_zones=(
            report.container_zones if event.container_zones is None else event.container_zones
        ),
        enforced=report.enforced if event.enforced is None else event.enforced,
    )


def by_key(placements: tuple[Placement, ...]) -> Listing:
    """Return the placements by `namespace/name` of their pod, in order of name."""
    pods: dict[str, list[Placement]] = {}
    for placement in placements:
        pods.setdefault(f"{placement.namespace}/{placement.pod}", []).append(placement)
    return {key: tuple(pods[key]) for key in sorted(pods)}


def _changed_zone(zone: Zone, event: NodeReportChanged) -> Zone:
    available = event.available.get(zone.id, {})
    free, group = event.free.get(zone.id), event.groups.get(zone.id)
    if not available and free is None and group is None:
        return zone
    resources = dict(zone.resources)
    for name, amount in available.items():
        if name in resources:
            whole = resources[name]
            resources[name] = ZoneResource(whole.capacity, whole.allocatable, amount)
    free = zone.free if free is None else free
    group = zone.group if group is None else group
    return msgspec.structs.replace(zone, resources=resources, free=free, group=group)


def _make_current(
    ledger: Ledger, node: LedgerNode, report: Report, version: int, position: int, has_moved: bool
) -> bool:
    """Make the report current. Return True if nothing counts any more of what was known of pods'
    places, because the report has another shape or an operator released the node."""
    has_moved = has_moved or node.released
    if has_moved and lists_by_match(report):
        node.listed = None
    earlier = node.report
    node.report, node.report_version, node.report_position = report, version, position
    node.expired, node.locked, node.released = False, "", False
    if lists_placements(node) or has_moved:
        node.basis = report
    if has_moved:
        _start_over(ledger, node, position)
    if lists_placements(node):
        _forget_ended(node)
    note_report(node, earlier, has_moved)
    return has_moved


def _list_containers(ledger: Ledger, node: LedgerNode, earlier_position: int) -> None:
    """Update the placements of a node whose reports have the zones of containers only. Without a
    match, the listing is still that of the earlier report."""
    if node.report is None or not may_list(node, node.report):
        return
    if confirm_containers(ledger, node):
        _forget_ended(node)
    elif node.listed is not None:
        node.report_position = earlier_position


def _same_shape(report: Report, other: Report) -> bool:
    """Compare what must not change for a pod's last confirmed zones to stay true: boot, policy,
    managers and zones."""
    return (
        report.boot_id == other.boot_id
        and (report.policy, report.scope, report.options, report.tracked)
        == (other.policy, other.scope, other.options, other.tracked)
        and len(report.zones) == len(other.zones)
        and all(map(_same_zone, report.zones, other.zones))
    )


def _same_zone(zone: Zone, other: Zone) -> bool:
    return zone.id == other.id and zone.resources.keys() == other.resources.keys()


def _start_over(ledger: Ledger, node: LedgerNode, position: int) -> None:
    for uid, charge in node.charges.items():
        redemand(node, charge, ledger.pods[uid])
    forget_places(node)
    node.freed, node.departed, node.confirmed_to = [], {}, 0
    pods = tuple(sorted((charge.key, charge.uid) for charge in node.charges.values()))
    node.history = [] if node.listed is not None else [Expectation(position, pods)]


def _forget_ended(node: LedgerNode) -> None:
    """Forget a name that the report does not list if its pods ended before the report was made. If
    that is not known, several reports decide."""
    if node.listed is None or not node.ended:
        return
    made_after = _made_after(node, node.listed)
    for key in list(node.ended):
        ended = node.ended[key]
        if key in node.listed:
            ended.lacking = 0
            continue
        ended.lacking += 1
        if ended.lacking >= ENDED_LACKING_REPORTS or _all_came_before(ended, made_after):
            forget_ended(node, key)


def _made_after(node: LedgerNode, listed: Container[str]) -> int:
    """Return a position after which the report was made: every pod that it lists had been sent.
    Names that several pods had say nothing."""
    live = {charge.key for charge in node.charges.values()}
    positions = [
        charge.sent_at
        for charge in node.charges.values()
        if charge.alias is None and charge.key in listed
    ]
    for key, ended in node.ended.items():
        if key in listed and key not in live and len(ended.lives or ()) == 1:
            positions += [life.sent_at for life in ended.lives or ()]
    return max(positions, default=0)


def _all_came_before(ended: Ended, position: int) -> bool:
    """Return True if every pod of the name was known to run, or to have ended, by `position`."""
    return ended.lives is not None and all(
        min(life.runs_at or life.ended_at, life.ended_at) <= position for life in ended.lives
    )
