"""The changes between two reports of one boot, and whether a delta can express them."""

from __future__ import annotations

from shared.domain.report import Report, Zone
from shared.events.report_events import NodeReportChanged
from shared.ledger.reports import by_key


def resembles(before: Report, after: Report) -> bool:
    """Return whether only availability, placements and fingerprint differ, which a delta can
    express."""
    if _frame(before) != _frame(after) or len(before.zones) != len(after.zones):
        return False
    return all(map(_same, before.zones, after.zones))


def _frame(report: Report) -> tuple[object, ...]:
    settings = (report.policy, report.scope, report.options, report.max_numa_nodes, report.tracked)
    machine = (report.cpus, report.devices, report.dynamic, report.kubelet_version)
    managers = (report.cpu_policy, report.memory_policy, report.reserved_cpus)
    source = (report.fingerprint_method, report.counts_blocks_in_full, report.unlisted)
    enforcer = (report.enforcer, report.enforced is None)
    listing = (report.placements is None, report.container_zones is None)
    return (*settings, *machine, *managers, *source, *enforcer, *listing)


def _same(before: Zone, after: Zone) -> bool:
    old_frame = before.id, before.costs, before.bounds, before.offered
    if old_frame != (after.id, after.costs, after.bounds, after.offered):
        return False
    if before.resources.keys() != after.resources.keys():
        return False
    for name, old in before.resources.items():
        new = after.resources[name]
        if old.capacity != new.capacity or old.allocatable != new.allocatable:
            return False
    return True


def changes(before: Report, after: Report) -> NodeReportChanged | None:
    """Return the delta from `before` to `after`, or None if their content is equal."""
    available = _availability(before.zones, after.zones)
    old, new = by_key(before.placements or ()), by_key(after.placements or ())
    listed = tuple(p for key in new if new[key] != old.get(key) for p in new[key])
    unlisted = tuple(key for key in old if key not in new)
    delta = NodeReportChanged(
        node=after.node,
        boot_id=after.boot_id,
        boot_time_ms=after.boot_time_ms,
        exporter="" if after.exporter == before.exporter else after.exporter,
        available=available,
        listed=listed,
        unlisted=unlisted,
        fingerprint=after.fingerprint,
        free=_free(before.zones, after.zones),
        groups=_groups(before.zones, after.zones),
        checkpoints=None if after.checkpoints == before.checkpoints else after.checkpoints,
        hidden=None if after.hidden == before.hidden else after.hidden,
        container_zones=(
            None if after.container_zones == before.container_zones else after.container_zones
        ),
        enforced=None if after.enforced == before.enforced else after.enforced,
    )
    return None if _is_empty(delta) and before.fingerprint == after.fingerprint else delta


def _is_empty(delta: NodeReportChanged) -> bool:
    changed = delta.available or delta.listed or delta.unlisted or delta.free or delta.groups
    further = (delta.checkpoints, delta.hidden, delta.container_zones, delta.enforced)
    return not changed and all(field is None for field in further)


def _free(before: tuple[Zone, ...], after: tuple[Zone, ...]) -> dict[int, dict[str, int]]:
    return {
        new.id: new.free for old, new in zip(before, after, strict=True) if new.free != old.free
    }


def _groups(before: tuple[Zone, ...], after: tuple[Zone, ...]) -> dict[int, tuple[int, ...]]:
    return {
        new.id: new.group for old, new in zip(before, after, strict=True) if new.group != old.group
    }


def _availability(before: tuple[Zone, ...], after: tuple[Zone, ...]) -> dict[int, dict[str, int]]:
    by_zone = {}
    for old, new in zip(before, after, strict=True):
        changed = {
            n: r.available
            for n, r in new.resources.items()
            if r.available != old.resources[n].available
        }
        if changed:
            by_zone[new.id] = changed
    return by_zone
