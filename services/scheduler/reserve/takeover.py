"""Record the zones, CPUs and devices of pods that Topolog did not place, on nodes whose zones it
chooses, and the devices that pods have lost.

1. Such a pod is charged in every zone and on every device. The annotations of koord-scheduler, or
   else the node's enforcer, say what it holds; that becomes an event, once. The enforcer names no
   amounts of shared CPUs and of memory, so the whole request counts in each zone that it names.
2. A Device object may stop to show a device that a pod holds. The pod keeps it, and an event says
   so, once for each change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from services.scheduler.reserve.proposals import Proposal
from services.scheduler.snapshot.owners import is_owned_resource, owners_of
from shared.domain.report import Placement
from shared.domain.resources import CPU, Amounts
from shared.domain.zone_allocation import ZoneAllocation
from shared.eventlog.port import Draft
from shared.events import streams
from shared.events.scheduling_events import (
    AllocationSource,
    PodAllocationFound,
    PodDevicesLost,
)
from shared.kubelet.cpuset import format_cpus, parse_cpus, union
from shared.ledger.state import Charge, Ledger, LedgerNode
from shared.owned.annotations import devices_of, holding_of
from shared.owned.request import PodSpecError
from shared.owned.values import Holding


def takeovers(
    ledger: Ledger, changed: Iterable[str], versions: Mapping[str, int]
) -> list[Proposal]:
    """Return the allocations that are known by now of pods on changed nodes."""
    proposals = []
    for name in changed:
        node = ledger.nodes.get(name)
        if node is None or node.basis is None or not owners_of(node.basis).is_owned:
            continue
        for uid in sorted(uid for uid, charge in node.charges.items() if not charge.allocation):
            allocation = _known_allocation(ledger, node, node.charges[uid])
            if allocation is not None:
                event = PodAllocationFound(uid, name, *allocation)
                proposals.append(_proposal("allocation", event, ledger.position, versions))
        for uid, lost in sorted(_lost_devices(node).items()):
            if lost != node.charges[uid].lost_devices:
                lost_event = PodDevicesLost(uid, name, lost)
                proposals.append(_proposal("devices", lost_event, ledger.position, versions))
    return proposals


def _lost_devices(node: LedgerNode) -> dict[str, tuple[str, ...]]:
    """Return by uid which devices of its allocation the node's Device object does not offer."""
    allocated = {
        uid: charge.allocation.devices
        for uid, charge in node.charges.items()
        if charge.allocation is not None and charge.allocation.devices
    }
    if node.devices is None or not allocated:
        return {}
    free = {
        (device.type, device.minor): dict(device.resources)
        for device in node.devices.devices
        if device.is_healthy
    }
    for devices in allocated.values():
        for card in devices:
            offered = free.get((card.type, card.minor), {})
            for name in offered.keys() & card.resources.keys():
                offered[name] -= card.resources[name]
    short = {key for key, amounts in free.items() if any(size < 0 for size in amounts.values())}
    offers = free.keys() - short
    return {
        uid: tuple(f"{h.type} {h.minor}" for h in devices if (h.type, h.minor) not in offers)
        for uid, devices in allocated.items()
    }


def _known_allocation(
    ledger: Ledger, node: LedgerNode, charge: Charge
) -> tuple[ZoneAllocation, AllocationSource] | None:
    by_annotation = from_annotations(ledger.pods[charge.uid].pod.annotations)
    report, devices = node.basis, node.devices.devices if node.devices is not None else ()
    zones = {zone.id for zone in report.zones} if report is not None else set()
    cards = {(device.type, device.minor) for device in devices}
    # Users can write annotations too, so they are ignored if they name what the node lacks.
    if (
        by_annotation is not None
        and by_annotation.zones.keys() <= zones
        and cards.issuperset((card.type, card.minor) for card in by_annotation.devices)
    ):
        return by_annotation, "annotation"
    enforced = report.enforced if report is not None else None
    placements = [entry for entry in enforced or () if entry.pod_uid == charge.uid]
    by_enforcer = from_enforcer(placements, charge.request)
    return None if by_enforcer is None else (by_enforcer, "enforcer")


def from_annotations(annotations: Mapping[str, str]) -> ZoneAllocation | None:
    """Return what koord-scheduler gave the pod; None if its annotations do not say that."""
    try:
        holding, devices = holding_of(annotations) or Holding(), devices_of(annotations)
    except PodSpecError:
        return None
    if not (holding.zones or holding.cpus or devices):
        return None
    zones = {record.zone: dict(record.amounts) for record in holding.zones}
    cpus = format_cpus(holding.cpus)
    return ZoneAllocation(zones, cpus, holding.cpu_exclusive, devices=devices)


def from_enforcer(placements: Iterable[Placement], request: Amounts) -> ZoneAllocation | None:
    """Return what one pod has according to the enforcer; None if that names no zones."""
    amounts_held = [amount for placement in placements for amount in placement.held]
    own_cpus = [amount for amount in amounts_held if amount.resource == CPU and amount.amount]
    zones = sorted({zone for amount in amounts_held for zone in amount.zones})
    if not zones:
        return None
    amounts = {name: size for name, size in request.items() if size and is_owned_resource(name)}
    by_zone = {zone: dict(amounts) for zone in zones}
    if own_cpus:
        for zone in zones:
            in_zone = union(parse_cpus(part.ids) for part in own_cpus if part.zones == (zone,))
            by_zone[zone][CPU] = in_zone.bit_count() * 1000
    return ZoneAllocation(by_zone, format_cpus(union(parse_cpus(part.ids) for part in own_cpus)))


def _proposal(
    about: str,
    event: PodAllocationFound | PodDevicesLost,
    position: int,
    versions: Mapping[str, int],
) -> Proposal:
    stream = streams.pod(event.uid)
    version = versions.get(stream, 0)
    draft = Draft(stream, event, version)
    return Proposal(f"{about}/{event.uid}/{version}", (draft,), event.uid, position)
