"""The zones that a pod gets on a node whose zones Topolog chooses.

1. Filter, select, reserve, preemption and explanations ask `allocate`, so that no two of them can
   disagree. The answer is kept until the node changes.
2. What a pod holds is its allocation in the log. A pod without one (of another scheduler, or from
   before Topolog owned the node) is charged with its whole request in every zone, because it may be
   anywhere. Claims of nominated pods count as held.
3. A pod that was resized keeps its CPUs and zones, and is charged with its new request in each of
   these zones.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from operator import is_not
from typing import cast

import msgspec

from services.scheduler.snapshot.node_info import NodeInfo
from services.scheduler.snapshot.owners import (
    BIND,
    forced_bind,
    is_owned_resource,
    memory_policy,
    strategies,
)
from services.scheduler.snapshot.pod_class import Plan
from shared.domain.cpus import CpuLayout, parse_runs
from shared.domain.pod import Pod
from shared.domain.policies import Policy
from shared.domain.refusal import Refusal
from shared.domain.report import Report
from shared.domain.resources import CPU, Amounts
from shared.domain.zone_allocation import DeviceHolding, ZoneAllocation
from shared.kube.device_objects import HONOR, MODEL_LABEL, PARTITION_POLICY
from shared.kubelet.cpuset import each_cpu, format_cpus, parse_cpus
from shared.kubelet.masks import mask_of
from shared.kubelet.topology import Cpu
from shared.ledger.state import Charge
from shared.owned.admit import admit
from shared.owned.annotations import completed_spec
from shared.owned.device_choice import completed
from shared.owned.device_request import TYPES, held_somewhere
from shared.owned.devices import (
    HOPPER,
    HOPPER_MODELS,
    Device,
    FreeDevices,
    OwnedDevices,
    free_devices_of,
)
from shared.owned.free import Free, free_of
from shared.owned.machine import CpuNesting, nesting
from shared.owned.values import (
    MOST_ALLOCATED,
    Allocation,
    BindPolicy,
    CpuExclusive,
    Holding,
    OwnedNode,
    OwnedRequest,
    ZoneAmounts,
)

# Most cached CPU layouts, and cached answers of one node: nodes and pods come in few types.
REMEMBERED = 256
# Koordinator spreads pods over zones. Measured, filling a zone first keeps room for large pods.
DEFAULT_STRATEGIES = {"zone_strategy": MOST_ALLOCATED}
_layouts: dict[CpuLayout, CpuNesting | None] = {}


class OwnedState(msgspec.Struct):
    """A node as `admit` sees it, and the answers that it gave; valid until the node changes.
    `devices` are set once a pod asks for some.
    """

    node: OwnedNode
    free: Free
    # By id of the request. The request is kept with its answer, so that no other gets its id.
    answers: dict[int, tuple[OwnedRequest, Allocation | Refusal]] = {}
    devices: FreeDevices | None = None


def allocate(node_info: NodeInfo, plan: Plan) -> Allocation | Refusal:
    """Return what a pod with this plan gets on the node, or why it gets nothing."""
    state = owned_state(node_info)
    request = plan.owned_request
    kept = state.answers.get(id(request))
    if kept is None:
        if len(state.answers) >= REMEMBERED:
            state.answers.clear()
        devices = plan.devices
        cards = None if devices is None else (_free_devices(node_info, state), devices)
        answer = admit(state.node, state.free, request, cards)
        kept = state.answers[id(request)] = request, answer
    return kept[1]


def zone_allocation(node_info: NodeInfo, plan: Plan, pod: Pod) -> ZoneAllocation | None:
    """Return the allocation for the log; None if the pod may use every zone and every CPU."""
    allocation = allocate(node_info, plan)
    if isinstance(allocation, Refusal):
        return None
    holding = allocation.holding
    if not (holding.zones or holding.cpus or allocation.devices):
        return None
    return ZoneAllocation(
        {zone.zone: dict(sorted(zone.amounts.items())) for zone in holding.zones},
        format_cpus(holding.cpus),
        holding.cpu_exclusive,
        completed_spec(allocation, pod.annotations),
        BIND if memory_policy(_labels(node_info)) == BIND else "",
        allocation.devices,
    )


def owned_state(node_info: NodeInfo) -> OwnedState:
    """Return the node with what its pods and claims leave; kept until the node changes."""
    kept: OwnedState | None = node_info.owned
    if kept is None:
        kept = node_info.owned = _owned_state(node_info)
    return kept


def _owned_state(node_info: NodeInfo) -> OwnedState:
    basis = node_info.report, node_info.observed, node_info.rule
    if node_info.owned_node is None or any(map(is_not, node_info.owned_node[0], basis)):
        node_info.owned_node = basis, owned_node(node_info)
    node: OwnedNode = node_info.owned_node[1]
    zones = tuple(zone.zone for zone in node.zones)
    holdings = [holding_of(charge, zones) for charge in node_info.charges()]
    holdings += [_holding(claim) for claim in node_info.claims.values()]
    return OwnedState(node, free_of(node, filter(None, holdings)))


def _free_devices(node_info: NodeInfo, state: OwnedState) -> FreeDevices:
    """Return the node's devices with what pods leave of them."""
    if state.devices is None:
        observed, labels = node_info.devices, _labels(node_info)
        assert observed is not None  # The profile has types of devices.
        partitions, keeps = observed.partitions, observed.keeps_partitions
        if partitions is None and labels.get(MODEL_LABEL) in HOPPER_MODELS:
            partitions, keeps = HOPPER, labels.get(PARTITION_POLICY) == HONOR
        node = OwnedDevices(observed.devices, partitions, keeps, state.node.zone_strategy)
        claims = node_info.ledger.device_claims.values()
        holdings = list(device_holdings(node_info.charges(), observed.devices))
        holdings += (card for claim in claims for card in claim)
        every = mask_of(zone.zone for zone in state.node.zones)
        state.devices = free_devices_of(node, holdings, every)
    return state.devices


def device_holdings(
    charges: Iterable[Charge], devices: Collection[Device]
) -> Iterator[DeviceHolding]:
    """Yield what pods hold of the devices, at most. A pod whose devices are not known may have any,
    so it holds its part of each.
    """
    types = {device.type for device in devices}
    for charge in charges:
        given = charge.allocation.devices if charge.allocation is not None else ()
        yield from given
        if charge.request.keys() & TYPES.keys():
            unknown = types.difference(card.type for card in given)
            anywhere = held_somewhere(charge.request, unknown)
            for device in devices if anywhere else ():
                if device.type in anywhere:
                    part = anywhere[device.type] or device.resources
                    yield completed(device, DeviceHolding(device.type, device.minor, part))


def owned_node(node_info: NodeInfo) -> OwnedNode:
    """Return the node's zones, CPUs, policy and strategy."""
    report = node_info.report
    if report is None:
        return OwnedNode(node_info.name)
    labels = _labels(node_info)
    reserved, cpus = parse_cpus(report.reserved_cpus), cpu_nesting(report.cpus)
    return OwnedNode(
        name=node_info.name,
        zones=tuple(_zones(report, reserved, cpus, memory_policy(labels) != "none")),
        cpus=cpus,
        reserved_cpus=reserved,
        policy=cast("Policy", node_info.rule.policy),
        forced_bind=cast("BindPolicy", forced_bind(labels)),
        **(DEFAULT_STRATEGIES | strategies(labels)),
    )


def _labels(node_info: NodeInfo) -> Mapping[str, str]:
    return node_info.observed.labels if node_info.observed is not None else {}


def _zones(
    report: Report, reserved: int, cpus: CpuNesting | None, with_memory: bool
) -> Iterable[ZoneAmounts]:
    """Yield what the zones offer; `admit` subtracts reserved CPUs itself."""
    for zone in sorted(report.zones, key=lambda zone: zone.id):
        amounts = {
            name: amount
            for name, amount in zone.offered.items()
            if is_owned_resource(name) and (with_memory or name == CPU)
        }
        if cpus is not None and CPU in amounts:
            reserved_here = reserved & cpus.in_zone.get(zone.id, 0)
            amounts[CPU] += reserved_here.bit_count() * 1000
        yield ZoneAmounts(zone.id, amounts)


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
    zones = tuple([ZoneAmounts(zone, by_zone[zone]) for zone in sorted(by_zone)])
    return Holding(cpus, exclusive, zones)
