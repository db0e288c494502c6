"""A kubelet's state from one report and the manifests of its pods, or the names of what remains
unknown.

A pod that the report lists is assumed to hold its listed amounts, confirmed or not: that is the
caller's concern. Holdings of uids that are not among the pods are stale: the kubelet drops them at
its next admission. This module does not know the ledger.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from shared.domain.idlist import parse_ids
from shared.domain.pod import Pod
from shared.domain.quantity import amount
from shared.domain.report import POD_LEVEL_GATE, Placement, Report, Zone
from shared.domain.resources import CPU, HUGEPAGES_PREFIX, MEMORY, is_hugepages, is_memory
from shared.kubelet.config import KubeletConfig, MachineConfig, ZoneConfig
from shared.kubelet.cpu_state import CpuState
from shared.kubelet.cpuset import parse_cpus, union
from shared.kubelet.device_state import Device, DeviceState, hold
from shared.kubelet.layout import cpus_in
from shared.kubelet.machine import ActivePod, KubeletState, Stale, build
from shared.kubelet.masks import mask_of
from shared.kubelet.memory_state import Block, Blocks, MemoryState, MemoryTable, NodeMemory, take
from shared.kubelet.options import ConfigError
from shared.kubelet.topology_manager import MAX_ALLOWABLE, PREFER_CLOSEST
from shared.kubelet.versions import DEFAULT, KubeletRules

TOPOLOGY_OPTIONS = (PREFER_CLOSEST, MAX_ALLOWABLE)

CPUS, DEVICES, POLICY, PLACEMENTS = "cpus", "devices", "policy", "placements"
INIT_CONTAINERS, MEMORY_GROUPS, IDS = "init containers", "memory groups", "ids"


class Held(msgspec.Struct, frozen=True):
    """The holdings of one container: CPUs (bit i = CPU i), memory blocks, devices by resource."""

    cpus: int = 0
    memory: Blocks = ()
    devices: dict[str, frozenset[str]] = {}


# Pod uid -> container name -> holdings.
Holdings = dict[str, dict[str, Held]]


class Open(msgspec.Struct, frozen=True):
    """The unknown parts, by name (the constants of this module), or the text with which a kubelet
    would not start.
    """

    reasons: tuple[str, ...]


def observed(
    report: Report, pods: Iterable[Pod], rules: KubeletRules = DEFAULT
) -> KubeletState | Open:
    """The state of the node's kubelet, with these pods live on it and these rules."""
    live = {pod.uid: pod for pod in pods}
    fresh = empty_kubelet(report, rules)
    if isinstance(fresh, Open):
        return fresh
    reasons = _hidden(report, live)
    try:
        holdings = _holdings(report, live)
    except ValueError:
        return Open((*reasons, IDS))
    if "memory" not in report.checkpoints and _wide(holdings):
        reasons = (*reasons, MEMORY_GROUPS)
    return Open(reasons) if reasons else _filled(fresh, report, holdings, live)


def empty_kubelet(report: Report, rules: KubeletRules = DEFAULT) -> KubeletState | Open:
    """Return the kubelet without any pod: machine, configuration, devices."""
    cpus = cpus_in(report.cpus) if report.cpus is not None else None
    reported_version = {
        CPUS: cpus is not None,
        DEVICES: report.devices is not None,
        POLICY: _known_policies(report),
    }
    missing = tuple(name for name, reported in reported_version.items() if not reported)
    if missing or cpus is None:
        return Open(missing)
    try:
        devices = _registered(report)
    except ValueError:
        return Open((IDS,))
    built = build(MachineConfig(_zones(report), cpus), _config(report, rules), devices)
    return Open((built.message,)) if isinstance(built, ConfigError) else built


def _known_policies(report: Report) -> bool:
    return "unknown" not in (report.policy, report.cpu_policy, report.memory_policy)


def _zones(report: Report) -> tuple[ZoneConfig, ...]:
    names = {
        name
        for zone in report.zones
        for name in (*zone.resources, *zone.bounds, *zone.free)
        if is_hugepages(name)
    }
    sizes = {name: amount(MEMORY, name.removeprefix(HUGEPAGES_PREFIX)) for name in sorted(names)}
    ids = sorted(zone.id for zone in report.zones)
    zones = []
    for zone in report.zones:
        pages = {size: _total(zone, name) // size for name, size in sizes.items()}
        distances = (
            tuple(zone.costs[reported_zone] for reported_zone in ids)
            if all(reported_zone in zone.costs for reported_zone in ids)
            else ()
        )
        zones.append(
            ZoneConfig(
                zone.id, _memory(zone, sum(_total(zone, name) for name in sizes)), pages, distances
            )
        )
    return tuple(zones)


def _memory(zone: Zone, in_pages: int) -> int:
    """Return the zone's memory including hugepages. A bound excludes them."""
    return (
        zone.resources[MEMORY].capacity
        if MEMORY in zone.resources
        else zone.bounds.get(MEMORY, 0) + in_pages
    )


def _total(zone: Zone, name: str) -> int:
    return zone.resources[name].capacity if name in zone.resources else zone.bounds.get(name, 0)


def _config(report: Report, rules: KubeletRules) -> KubeletConfig:
    """A running kubelet has its options: their gates are on, and its version knows them."""
    options = report.options
    return KubeletConfig(
        topology_policy=report.policy,
        topology_scope=report.scope,
        topology_options={
            name: options[name] for name in sorted(options) if name in TOPOLOGY_OPTIONS
        },
        cpu_policy=report.cpu_policy,
        cpu_options={
            name: options[name]
            for name in sorted(options)
            if name not in (*TOPOLOGY_OPTIONS, POD_LEVEL_GATE)
        },
        reserved_cpus=report.reserved_cpus,
        memory_policy=report.memory_policy,
        reserved_memory={zone.id: _reserved(zone) for zone in report.zones},
        alpha_cpu_options=True,
        alpha_topology_options=True,
        pod_level_managers=report.options.get(POD_LEVEL_GATE) == "true",
        rules=rules,
    )


def _reserved(zone: Zone) -> dict[str, int]:
    """Return the part of the zone's memory that the Memory Manager does not allocate, apart from
    hugepages.
    """
    reserved = {
        name: r.capacity - r.allocatable for name, r in zone.resources.items() if is_hugepages(name)
    }
    if MEMORY in zone.resources:
        pages = sum(r.capacity for name, r in zone.resources.items() if is_hugepages(name))
        reserved[MEMORY] = max(
            0, zone.resources[MEMORY].capacity - pages - zone.resources[MEMORY].allocatable
        )
    return reserved


def _registered(report: Report) -> dict[str, dict[str, Device]]:
    registered: dict[str, dict[str, Device]] = {}
    for group in report.devices or ():
        mask = mask_of(group.zones) if group.zones else None
        for ids, healthy in ((group.ids, True), (group.unhealthy, False)):
            registered.setdefault(group.resource, {}).update(
                {device_group: Device(mask, healthy) for device_group in parse_ids(ids)}
            )
    return registered


def _hidden(report: Report, live: Mapping[str, Pod]) -> tuple[str, ...]:
    """Return the holdings of ordinary init containers, which only checkpoints show. A uid in none
    of them holds nothing.
    """
    if report.placements is None:
        return (PLACEMENTS,)
    init = (
        placement
        for pod in live.values()
        for placement in pod.containers
        if placement.kind == "init"
    )
    wanted = {_manager(name) for placement in init for name in placement.requests}
    return () if wanted <= {*report.checkpoints, ""} else (INIT_CONTAINERS,)


def _manager(name: str) -> str:
    if name == CPU:
        return "cpu"
    if is_memory(name):
        return "memory"
    return "devices" if "/" in name else ""


def _holdings(report: Report, live: Mapping[str, Pod]) -> Holdings:
    """Return holdings by uid: the hidden ones if they cover the whole pod, else those listed under
    its name. Raises ValueError.
    """
    by_uid: Holdings = {}
    for placement in report.hidden:
        _add(by_uid, placement.pod_uid, placement)
    whole = {placement.pod_uid for placement in report.hidden if not placement.pod}
    uids = {(pod.namespace, pod.name): uid for uid, pod in live.items()}
    for placement in report.placements or ():
        uid = placement.pod_uid or uids.get((placement.namespace, placement.pod), "")
        if uid and uid not in whole:
            _add(by_uid, uid, placement)
    return by_uid


def _add(by_uid: Holdings, uid: str, placement: Placement) -> None:
    containers = by_uid.setdefault(uid, {})
    previous = containers.get(placement.container, Held())
    cpus = union(parse_cpus(amount.ids) for amount in placement.held if amount.resource == CPU)
    memory = tuple(
        Block(mask_of(amount.zones), amount.amount, amount.resource)
        for amount in placement.held
        if is_memory(amount.resource)
    )
    devices: dict[str, frozenset[str]] = dict(previous.devices)
    for held_amount in placement.held:
        if held_amount.resource != CPU and not is_memory(held_amount.resource):
            devices[held_amount.resource] = devices.get(
                held_amount.resource, frozenset()
            ) | frozenset(parse_ids(held_amount.ids))
    containers[placement.container] = Held(
        previous.cpus | cpus, (*previous.memory, *memory), devices
    )


def _wide(holdings: Holdings) -> bool:
    """Return the split of a block over several zones, which only the Memory Manager's own figures
    show.
    """
    amount = (
        block
        for containers in holdings.values()
        for zone in containers.values()
        for block in zone.memory
    )
    return any(block.mask.bit_count() > 1 for block in amount)


def _filled(
    fresh: KubeletState, report: Report, holdings: Holdings, live: Mapping[str, Pod]
) -> KubeletState:
    stale = tuple(uid for uid in sorted(holdings) if uid not in live)
    active = {uid: ActivePod(pod) for uid, pod in live.items()}
    return KubeletState(
        fresh.kubelet,
        _cpu_state(fresh.cpu, holdings),
        _memory_state(fresh.memory, report, holdings),
        _device_state(fresh.devices, holdings),
        active,
        Stale(stale, stale, stale),
    )


def _cpu_state(fresh: CpuState, holdings: Holdings) -> CpuState:
    entries = {
        uid: {
            name: container_held.cpus
            for name, container_held in pod_holdings.items()
            if container_held.cpus
        }
        for uid, pod_holdings in holdings.items()
    }
    kept = {uid: pod_holdings for uid, pod_holdings in entries.items() if pod_holdings}
    return CpuState(
        fresh.shared
        & ~union(cpus for pod_holdings in kept.values() for cpus in pod_holdings.values()),
        kept,
    )


def _device_state(state: DeviceState, holdings: Holdings) -> DeviceState:
    for uid, pod_holdings in holdings.items():
        for name, container_held in pod_holdings.items():
            for resource, ids in container_held.devices.items():
                state = hold(state, uid, name, resource, ids)
    return state


def _memory_state(fresh: MemoryState, report: Report, holdings: Holdings) -> MemoryState:
    if fresh.config.policy == "None":
        return fresh
    entries = {
        uid: {
            name: container_held.memory
            for name, container_held in pod_holdings.items()
            if container_held.memory
        }
        for uid, pod_holdings in holdings.items()
    }
    kept = {uid: pod_holdings for uid, pod_holdings in entries.items() if pod_holdings}
    nodes: Mapping[int, NodeMemory] = fresh.nodes
    for pod_holdings in kept.values():
        for block in (block for blocks in pod_holdings.values() for block in blocks):
            nodes = take(nodes, block)
    reported = {zone.id: zone for zone in report.zones} if "memory" in report.checkpoints else {}
    return MemoryState(
        fresh.config,
        {zone_id: _as_told(node, reported.get(zone_id)) for zone_id, node in nodes.items()},
        kept,
    )


def _as_told(node: NodeMemory, zone: Zone | None) -> NodeMemory:
    """Use the Memory Manager's own free bytes and groups: the order of arrival shapes groups, and
    no listing shows that order.
    """
    if zone is None:
        return node
    tables = {
        name: _table(table, zone.free.get(name, table.free)) for name, table in node.tables.items()
    }
    return NodeMemory(node.assignments, mask_of(zone.group) or 1 << zone.id, tables)


def _table(table: MemoryTable, free: int) -> MemoryTable:
    return MemoryTable(
        table.total, table.system_reserved, table.allocatable, table.allocatable - free, free
    )


__all__: Sequence[str] = ["Held", "Open", "empty_kubelet", "observed"]
