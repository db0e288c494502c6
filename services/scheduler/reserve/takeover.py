"""Record the zones and CPUs of pods that Topolog did not place, on nodes whose zones it chooses.

Such a pod is charged in every zone. The annotation of koord-scheduler, or else the node's enforcer,
says what it holds; that becomes an event, once. The enforcer names no amounts of shared CPUs and of
memory, so the whole request counts in each zone that it names.
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
from shared.events.scheduling_events import AllocationSource, PodAllocationFound
from shared.kubelet.cpuset import format_cpus, parse_cpus, union
from shared.ledger.state import Charge, Ledger, LedgerNode
from shared.owned.annotations import holding_of
from shared.owned.request import PodSpecError


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
                proposals.append(_proposal(uid, name, allocation, ledger.position, versions))
    return proposals


def _known_allocation(
    ledger: Ledger, node: LedgerNode, charge: Charge
) -> tuple[ZoneAllocation, AllocationSource] | None:
    by_annotation = from_annotations(ledger.pods[charge.uid].pod.annotations)
    report = node.basis
    zones = {zone.id for zone in report.zones} if report is not None else set()
    # Users can write the annotation too, so it is ignored if it names zones that the node lacks.
    if by_annotation is not None and by_annotation.zones.keys() <= zones:
        return by_annotation, "annotation"
    enforced = report.enforced if report is not None else None
    placements = [entry for entry in enforced or () if entry.pod_uid == charge.uid]
    by_enforcer = from_enforcer(placements, charge.request)
    return None if by_enforcer is None else (by_enforcer, "enforcer")


def from_annotations(annotations: Mapping[str, str]) -> ZoneAllocation | None:
    """Return what koord-scheduler gave the pod; None if its annotations do not say that."""
    try:
        holding = holding_of(annotations)
    except PodSpecError:
        return None
    if holding is None or not (holding.zones or holding.cpus):
        return None
    zones = {record.zone: dict(record.amounts) for record in holding.zones}
    return ZoneAllocation(zones, format_cpus(holding.cpus), holding.cpu_exclusive)


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
    uid: str,
    node: str,
    allocation: tuple[ZoneAllocation, AllocationSource],
    position: int,
    versions: Mapping[str, int],
) -> Proposal:
    stream = streams.pod(uid)
    version = versions.get(stream, 0)
    draft = Draft(stream, PodAllocationFound(uid, node, *allocation), version)
    return Proposal(f"allocation/{uid}/{version}", (draft,), uid, position)
