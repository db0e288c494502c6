"""A node whose zones Topolog chooses: its zones and CPUs, the holdings of its pods, and the rest.

1. What a pod holds is its allocation in the log. A pod without one (of another scheduler, or from
   before Topolog owned the node) is charged with its whole request in every zone, because it may be
   anywhere. Claims of nominated pods count as held.
2. A pod that was resized keeps its CPUs and zones, and is charged with its new request in each of
   these zones.
3. Zones have devices for scores only: as if each pod had its devices from its own zone. The kubelet
   takes them from any zone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from operator import is_
from typing import NamedTuple, cast

import msgspec

from services.scheduler.snapshot.owners import (
    forced_bind,
    is_owned_resource,
    memory_policy,
    strategies,
)
from services.scheduler.snapshot.topology_policy import Rule
from shared.domain.cpus import CpuLayout, parse_runs
from shared.domain.policies import Policy
from shared.domain.refusal import Refusal
from shared.domain.report import Report
from shared.domain.resources import CPU, Amounts
from shared.domain.zone_allocation import ZoneAllocation
from shared.events.cluster_events import NodeObserved
from shared.kubelet.cpuset import each_cpu, parse_cpus
from shared.kubelet.topology import Cpu
from shared.ledger.state import Charge, ZoneAmounts
from shared.owned.device_request import TYPES
from shared.owned.devices import FreeDevices
from shared.owned.free import Free, free_of, less
from shared.owned.machine import CpuNesting, nesting
from shared.owned.values import (
    MOST_ALLOCATED,
    Allocation,
    BindPolicy,
    CpuExclusive,
    Holding,
    OwnedNode,
    OwnedRequest,
)
from shared.owned.values import ZoneAmounts as OwnedZone

# Most cached CPU layouts: nodes come in few types.
REMEMBERED = 256
# Koordinator spreads pods over zones. Measured, filling a zone first keeps room for large pods.
DEFAULT_STRATEGIES = {"zone_strategy": MOST_ALLOCATED}
_layouts: dict[CpuLayout, CpuNesting | None] = {}


class _Held(NamedTuple):
    """A holding with its sources, which are never changed in place."""

    request: Amounts
    allocation: object
    holding: Holding | None


MadeFor = tuple[Report | None, NodeObserved | None, Rule]


class OwnedState(msgspec.Struct):
    """A node as `admit` sees it, and the answers that it gave; valid until the node changes.

    `zones` are the free amounts of each zone and `sizes` the allocatable ones, with devices
    (paragraph 3). `holdings` are by pod. `devices` are set once a pod asks for some. `latest` is
    the latest allocation for the log with its holding.
    """

    node: OwnedNode
    made_for: MadeFor
    free: Free
    zones: ZoneAmounts
    sizes: ZoneAmounts
    holdings: dict[str, _Held]
    # By id of the request and the zone that is tried first. The request is kept with its answer, so
    # that no other gets its id.
    answers: dict[tuple[int, int | None], tuple[OwnedRequest, Allocation | Refusal]] = {}
    devices: FreeDevices | None = None
    latest: tuple[ZoneAllocation, Holding] | None = None


def owned_state(
    name: str,
    made_for: MadeFor,
    devices: ZoneAmounts,
    charges: Iterable[Charge],
    claims: Iterable[ZoneAmounts],
    earlier: OwnedState | None,
) -> OwnedState:
    """Return the state of a node with these pods and claims. `devices` are the sizes of other
    resources by zone. `earlier` is an earlier state of the node, if there is one.
    """
    if earlier is not None and not all(map(is_, made_for, earlier.made_for)):
        earlier = None
    node = owned_node(name, made_for) if earlier is None else earlier.node
    ids = tuple(zone.zone for zone in node.zones)
    remembered = earlier.holdings if earlier is not None else {}
    charges, holdings = tuple(charges), dict[str, _Held]()
    for charge in charges:
        kept = remembered.get(charge.uid)
        if (
            kept is None
            or kept.allocation is not charge.allocation
            or kept.request is not charge.request
        ):
            kept = _Held(charge.request, charge.allocation, holding_of(charge, ids))
        holdings[charge.uid] = kept
    everything = [kept.holding for kept in holdings.values() if kept.holding is not None]
    free = free_of(node, [*everything, *map(_holding, claims)])
    zones = {zone: {**devices.get(zone, {}), **free.amounts[zone]} for zone in free.zones}
    for charge in charges:
        for zone, amounts in devices_by_zone(charge).items():
            _take(zones, zone, amounts)
    if earlier is not None:
        sizes = earlier.sizes
    else:
        sizes = {zone: {**devices.get(zone, {}), **free.capacity[zone]} for zone in free.zones}
    return OwnedState(node, made_for, free, zones, sizes, holdings)


def with_pod(state: OwnedState, charge: Charge) -> OwnedState | None:
    """Return the state after one more pod; None if it cannot be derived."""
    if state.latest is not None and state.latest[0] is charge.allocation:
        holding: Holding | None = state.latest[1]
    else:
        holding = holding_of(charge, state.free.zones)
    if holding is None or not holding.zones or not holding.is_chosen:
        return None
    free, zones = less(state.free, state.node, holding), dict(state.zones)
    for zone, amounts in free.amounts.items():
        if amounts is not state.free.amounts[zone]:
            zones[zone] = {**zones[zone], **amounts}
    for zone, amounts in devices_by_zone(charge).items():
        _take(zones, zone, amounts)
    holdings = {**state.holdings, charge.uid: _Held(charge.request, charge.allocation, holding)}
    devices = None if state.devices is None else _less(state.devices, charge)
    return OwnedState(
        state.node, state.made_for, free, zones, state.sizes, holdings, devices=devices
    )


def _less(devices: FreeDevices, charge: Charge) -> FreeDevices | None:
    """Return what remains of the devices after one more pod; None if its cards are not known."""
    cards = charge.allocation.devices if charge.allocation is not None else ()
    asked = {TYPES[name] for name in charge.request.keys() & TYPES.keys()}
    is_known = (asked & devices.devices.keys()) <= {card.type for card in cards}
    return devices.less(cards) if is_known else None


def taken_by_zone(charge: Charge) -> ZoneAmounts:
    """Return what a pod with an allocation takes from `OwnedState.zones`."""
    assert charge.allocation is not None
    taken: ZoneAmounts = charge.allocation.zones
    for zone, amounts in devices_by_zone(charge).items():
        taken = {**taken, zone: {**taken[zone], **amounts}}
    return taken


def devices_by_zone(charge: Charge) -> ZoneAmounts:
    """Return the pod's devices in the first of its zones; {} without a zone or devices."""
    if charge.allocation is None or not charge.allocation.zones:
        return {}
    devices = {n: size for n, size in charge.request.items() if not is_owned_resource(n)}
    return {min(charge.allocation.zones): devices} if devices else {}


def _take(zones: ZoneAmounts, zone: int, amounts: Amounts) -> None:
    free = zones.get(zone, {})
    for name, amount in amounts.items():
        if name in free:
            free[name] -= amount


def labels_of(observed: NodeObserved | None) -> Mapping[str, str]:
    """Return the labels of a Node object, {} without one."""
    return observed.labels if observed is not None else {}


def owned_names(report: Report | None, observed: NodeObserved | None) -> dict[int, tuple[str, ...]]:
    """Return the resources that Topolog chooses, by zone."""
    with_memory = memory_policy(labels_of(observed)) != "none"
    return {
        zone.id: tuple(
            name
            for name in zone.offered
            if is_owned_resource(name) and (with_memory or name == CPU)
        )
        for zone in (report.zones if report is not None else ())
    }


def owned_node(name: str, made_for: MadeFor) -> OwnedNode:
    """Return the node's zones, CPUs, policy and strategy."""
    report, observed, rule = made_for
    assert report is not None
    labels = labels_of(observed)
    reserved, cpus = parse_cpus(report.reserved_cpus), cpu_nesting(report.cpus)
    return OwnedNode(
        name=name,
        zones=tuple(_zones(report, reserved, cpus, owned_names(report, observed))),
        cpus=cpus,
        reserved_cpus=reserved,
        policy=cast("Policy", rule.policy),
        forced_bind=cast("BindPolicy", forced_bind(labels)),
        **(DEFAULT_STRATEGIES | strategies(labels)),
    )


def _zones(
    report: Report, reserved: int, cpus: CpuNesting | None, names: Mapping[int, Iterable[str]]
) -> Iterator[OwnedZone]:
    """Yield what the zones offer; `admit` subtracts reserved CPUs itself."""
    for zone in sorted(report.zones, key=lambda zone: zone.id):
        amounts = {name: zone.offered[name] for name in names[zone.id]}
        if cpus is not None and CPU in amounts:
            reserved_here = reserved & cpus.in_zone.get(zone.id, 0)
            amounts[CPU] += reserved_here.bit_count() * 1000
        yield OwnedZone(zone.id, amounts)


def cpu_nesting(layout: CpuLayout | None) -> CpuNesting | None:
    """Return the CPUs of a report; None if their layout is unknown."""
    if layout is None:
        return None
    if layout not in _layouts:
        if len(_layouts) >= REMEMBERED:
            _layouts.clear()
        _layouts[layout] = _nesting(layout)
    return _layouts[layout]


def _nesting(layout: CpuLayout) -> CpuNesting | None:
    columns = [parse_runs(text) for text in (layout.zones, layout.sockets, layout.cores)]
    ids = tuple(each_cpu(parse_cpus(layout.ids)))
    if any(len(column) != len(ids) for column in columns):
        return None
    zones, sockets, cores = columns
    return nesting(
        Cpu(cpu, core, socket, zone, 0)
        for cpu, zone, socket, core in zip(ids, zones, sockets, cores, strict=True)
    )


def holding_of(charge: Charge, zones: Iterable[int]) -> Holding | None:
    """Return what a pod holds, at most; None for nothing."""
    request = {n: a for n, a in charge.request.items() if a > 0 and is_owned_resource(n)}
    allocation = charge.allocation
    if allocation is None or not (allocation.zones or allocation.cpus):
        if not request:
            return None
        anywhere = _holding(dict.fromkeys(zones, request))
        return msgspec.structs.replace(anywhere, is_chosen=False)
    by_zone: Mapping[int, Amounts] = allocation.zones
    grown = {
        name: amount
        for name, amount in request.items()
        if amount > sum(amounts.get(name, 0) for amounts in by_zone.values())
    }
    if grown:
        by_zone = {zone: {**amounts, **grown} for zone, amounts in by_zone.items()}
    exclusive = cast("CpuExclusive", allocation.cpu_exclusive)
    return _holding(by_zone, parse_cpus(allocation.cpus), exclusive)


def _holding(
    by_zone: Mapping[int, Amounts], cpus: int = 0, exclusive: CpuExclusive = ""
) -> Holding:
    zones = tuple([OwnedZone(zone, by_zone[zone]) for zone in sorted(by_zone)])
    return Holding(cpus, exclusive, zones)
