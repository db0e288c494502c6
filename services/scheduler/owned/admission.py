"""The zones that a pod gets on a node whose zones Topolog chooses, and nodes with bookings as the
pods see them that may use these.

Filter, select, reserve, preemption and explanations ask `allocate`, so that no two of them can
disagree. Answers are kept until the node changes.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from types import MappingProxyType

import msgspec

from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.node_info import NodeInfo
from services.scheduler.snapshot.owned_state import OwnedState, labels_of
from services.scheduler.snapshot.owners import BIND, memory_policy
from services.scheduler.snapshot.pod_class import Plan, PodClass
from shared.domain.booking import less
from shared.domain.pod import Pod
from shared.domain.refusal import Refusal
from shared.domain.resources import Amounts
from shared.domain.zone_allocation import DeviceHolding, ZoneAllocation
from shared.kube.device_objects import HONOR, MODEL_LABEL, PARTITION_POLICY
from shared.kubelet.cpuset import format_cpus, parse_cpus
from shared.kubelet.masks import mask_of
from shared.ledger.alike import kind_of
from shared.ledger.charging import rest_of
from shared.ledger.state import Charge, LedgerPod
from shared.ledger.what_if import newcomer
from shared.owned.admit import admit
from shared.owned.annotations import completed_spec
from shared.owned.device_choice import completed
from shared.owned.device_request import TYPES, held_somewhere
from shared.owned.devices import (
    HOPPER,
    HOPPER_MODELS,
    Device,
    FreeDevices,
    Layout,
    OwnedDevices,
    Partitions,
    free_devices_of,
    layout_of,
    likeness,
    with_shared_answers,
)
from shared.owned.values import Allocation

# Most answers that are kept for one node: pods come in few types.
REMEMBERED = 256
# Most layouts of devices that are kept, one for each Device object.
MOST_LAYOUTS = 8192
_NO_PODS: Mapping[str, LedgerPod] = MappingProxyType({})


def allocate(
    node_info: NodeInfo, plan: Plan, first_zone: int | None = None
) -> Allocation | Refusal:
    """Return what a pod with this plan gets on the node, or why it gets nothing. `first_zone` is
    taken before others if the pod fits it.
    """
    state, request = node_info.owned_state(), plan.owned_request
    kept = state.answers.get((id(request), first_zone))
    if kept is None:
        if len(state.answers) >= REMEMBERED:
            state.answers.clear()
        cards = None if plan.devices is None else (free_devices(node_info, state), plan.devices)
        answer = admit(state.node, state.free, request, cards, first_zone)
        kept = state.answers[id(request), first_zone] = request, answer
    return kept[1]


def zone_allocation(
    node_info: NodeInfo, plan: Plan, pod: Pod, first_zone: int | None
) -> ZoneAllocation | None:
    """Return the allocation for the log; None if the pod may use every zone and every CPU."""
    allocation = allocate(node_info, plan, first_zone)
    if isinstance(allocation, Refusal):
        return None
    holding = allocation.holding
    if not (holding.zones or holding.cpus or allocation.devices):
        return None
    for_log = ZoneAllocation(
        {zone.zone: dict(sorted(zone.amounts.items())) for zone in holding.zones},
        format_cpus(holding.cpus),
        holding.cpu_exclusive,
        completed_spec(allocation, pod.annotations),
        BIND if memory_policy(labels_of(node_info.observed)) == BIND else "",
        allocation.devices,
    )
    node_info.owned_state().latest = for_log, holding
    return for_log


def free_devices(node_info: NodeInfo, state: OwnedState) -> FreeDevices:
    """Return the node's devices with what pods leave of them."""
    if state.devices is None:
        observed = node_info.devices
        assert observed is not None  # The profile has types of devices.
        strategy = state.node.zone_strategy
        node = OwnedDevices(observed.devices, *partitions_of(node_info), strategy)
        claims = node_info.ledger.device_claims.values()
        holdings = list(device_holdings(node_info.charges(), observed.devices))
        holdings += (card for claim in claims for card in claim)
        every = mask_of(zone.zone for zone in state.node.zones)
        layout = _layout_of(observed.devices)[1]
        state.devices = free_devices_of(node, holdings, every, layout)
    if not state.devices.answers:
        _, _, alike = _layout_of(state.devices.node.devices)
        state.devices = with_shared_answers(state.devices, alike)
    return state.devices


def partitions_of(node_info: NodeInfo) -> tuple[Partitions | None, bool]:
    """Return the table of partitions, None without one, and whether GPUs are given by it only."""
    observed, labels = node_info.devices, labels_of(node_info.observed)
    if observed is None:
        return None, False
    if observed.partitions is None and labels.get(MODEL_LABEL) in HOPPER_MODELS:
        return HOPPER, labels.get(PARTITION_POLICY) == HONOR
    return observed.partitions, observed.keeps_partitions


_layouts: dict[int, tuple[tuple[Device, ...], Layout, bytes]] = {}


def _layout_of(devices: tuple[Device, ...]) -> tuple[tuple[Device, ...], Layout, bytes]:
    """Return the devices of a Device object with their layout and likeness, which are kept, because
    each state of the node asks.
    """
    kept = _layouts.get(id(devices))
    if kept is None or kept[0] is not devices:
        if len(_layouts) >= MOST_LAYOUTS:
            _layouts.clear()
        kept = _layouts[id(devices)] = devices, layout_of(devices), likeness(devices)
    return kept


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
        unknown = types.difference(card.type for card in given)
        if unknown and charge.request.keys() & TYPES.keys():
            anywhere = held_somewhere(charge.request, unknown)
            for device in devices if anywhere else ():
                if device.type in anywhere:
                    part = anywhere[device.type] or device.resources
                    yield completed(device, DeviceHolding(device.type, device.minor, part))


def booked_nodes(
    node_info: NodeInfo,
    entry: LedgerPod,
    pod_class: PodClass,
    claimant: str,
    config: CycleConfig,
    gone: Collection[str] = (),
    pods: Mapping[str, LedgerPod] = _NO_PODS,
) -> Iterator[NodeInfo]:
    """Yield the node as a pod that may use this booking sees it once the pods in `gone` have ended,
    the narrower choice first. The claimant's claim counts as free.
    """
    booking, uid, charges = entry.booking, entry.pod.uid, node_info.ledger.charges
    assert booking is not None
    rest, allocation = entry.pod, entry.allocation
    if gone:
        owners = [
            charge
            for owner, charge in charges.items()
            if owner not in gone and owner in pods and pods[owner].drawn_from == uid
        ]
        rest, allocation = rest_of(booking, owners)
    has, asked, names = kind_of(rest).request, pod_class.request, kind_of(booking.pod).request
    is_aligned = booking.terms.policy == "Aligned"
    if not is_aligned and any(asked.get(name, 0) > has.get(name, 0) for name in names):
        return
    rest = less(rest, asked)
    remaining = newcomer(rest, kind_of(rest), node_info.report, node_info.free_max)
    remaining.charge.booked = True
    is_owned = node_info.profile.owners.is_owned and allocation is not None
    newcomers = () if is_owned else (remaining,)

    def freed() -> NodeInfo:
        ended = (uid, *gone)
        return node_info.hypothetical(ended, {**pods, uid: entry}, claimant, config, newcomers)

    if allocation is None or not is_owned:
        yield freed()
        return
    narrow = freed()
    _prefer_cards(narrow, allocation.devices, pod_class, is_restricted=True)
    _restrict_zones(narrow, allocation, names)
    yield narrow
    if is_aligned:
        wide = freed()
        _prefer_cards(wide, allocation.devices, pod_class, is_restricted=False)
        yield wide


def _prefer_cards(
    node_info: NodeInfo,
    booked: tuple[DeviceHolding, ...],
    pod_class: PodClass,
    is_restricted: bool,
) -> None:
    """Let the pod take what is left of booked cards first, or nothing else of their types."""
    if booked and pod_class.devices is not None and node_info.devices is not None:
        state = node_info.owned_state()
        free = free_devices(node_info, state)
        state.devices = msgspec.structs.replace(
            free, booked=booked, is_restricted=is_restricted, answers={}
        )


def _restrict_zones(node_info: NodeInfo, allocation: ZoneAllocation, names: Container[str]) -> None:
    """Leave of these resources, and of the CPUs, what a booking has left."""
    state = node_info.owned_state()
    amounts: dict[int, Amounts] = {
        zone: {
            name: min(amount, allocation.zones.get(zone, {}).get(name, 0))
            if name in names
            else amount
            for name, amount in free.items()
        }
        for zone, free in state.free.amounts.items()
    }
    cpus = state.free.cpus & (parse_cpus(allocation.cpus) if allocation.cpus else ~0)
    free = msgspec.structs.replace(state.free, amounts=amounts, cpus=cpus)
    zones = {zone: {**state.zones[zone], **left} for zone, left in amounts.items()}
    node_info.owned = msgspec.structs.replace(state, free=free, zones=zones, answers={})
