"""A kubelet's state as one report and its pods' manifests tell it; or the names of what they leave
open.

A pod that the report lists is taken to hold what is listed for it, whether it is proven or not:
that is the caller's matter. Holdings of uids that are not among the pods are stale: the kubelet
drops them at its next admission. Must not know the ledger.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from shared.domain.idlist import parse_ids
from shared.domain.pod import Pod
from shared.domain.quantity import amount
from shared.domain.report import Placement, Report, Zone
from shared.domain.resources import CPU, HUGEPAGES_PREFIX, MEMORY, is_hugepages, is_memory
from shared.kubelet.config import KubeletConfig, MachineConfig, ZoneConfig
from shared.kubelet.cpu_state import CpuState, union
from shared.kubelet.cpuset import parse_cpus
from shared.kubelet.device_state import Device, DeviceState, hold
from shared.kubelet.layout import cpus_in
from shared.kubelet.machine import ActivePod, KubeletState, Stale, build
from shared.kubelet.masks import mask_of
from shared.kubelet.memory_state import Block, Blocks, MemoryState, MemoryTable, NodeMemory, take
from shared.kubelet.options import ConfigError
from shared.kubelet.topology_manager import MAX_ALLOWABLE, PREFER_CLOSEST

TOPOLOGY_OPTIONS = (PREFER_CLOSEST, MAX_ALLOWABLE)

CPUS, DEVICES, POLICY, PLACEMENTS = "cpus", "devices", "policy", "placements"
INIT_CONTAINERS, MEMORY_GROUPS, IDS = "init containers", "memory groups", "ids"


class Held(msgspec.Struct, frozen=True):
    """What one container holds: CPUs (bit i = CPU i), memory blocks, devices by resource."""

    cpus: int = 0
    memory: Blocks = ()
    devices: dict[str, frozenset[str]] = {}


Holdings = dict[str, dict[str, Held]]
"""Pod uid -> container name -> what it holds."""


class Open(msgspec.Struct, frozen=True):
    """What is not known, by name (the constants of this module), or the text with which a kubelet
    would not start.
    """

    reasons: tuple[str, ...]


def observed(report: Report, pods: Iterable[Pod]) -> KubeletState | Open:
    """The state of the node's kubelet, with these pods live on it."""
    live = {pod.uid: pod for pod in pods}
    fresh = empty_kubelet(report)
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


def empty_kubelet(report: Report) -> KubeletState | Open:
    """The kubelet without any pod: machine, configuration, devices."""
    cpus = cpus_in(report.cpus) if report.cpus is not None else None
    told = {
        CPUS: cpus is not None,
        DEVICES: report.devices is not None,
        POLICY: _known_policies(report),
    }
    missing = tuple(name for name, known in told.items() if not known)
    if missing or cpus is None:
        return Open(missing)
    try:
        devices = _registered(report)
    except ValueError:
        return Open((IDS,))
    built = build(MachineConfig(_zones(report), cpus), _config(report), devices)
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
            tuple(zone.costs[each] for each in ids)
            if all(each in zone.costs for each in ids)
            else ()
        )
        zones.append(
            ZoneConfig(
                zone.id, _memory(zone, sum(_total(zone, name) for name in sizes)), pages, distances
            )
        )
    return tuple(zones)


def _memory(zone: Zone, in_pages: int) -> int:
    """What the zone has, hugepages among it; a bound tells what it has beside them."""
    return (
        zone.resources[MEMORY].capacity
        if MEMORY in zone.resources
        else zone.bounds.get(MEMORY, 0) + in_pages
    )


def _total(zone: Zone, name: str) -> int:
    return zone.resources[name].capacity if name in zone.resources else zone.bounds.get(name, 0)


def _config(report: Report) -> KubeletConfig:
    options = report.options
    return KubeletConfig(
        topology_policy=report.policy,
        topology_scope=report.scope,
        topology_options={
            name: options[name] for name in sorted(options) if name in TOPOLOGY_OPTIONS
        },
        cpu_policy=report.cpu_policy,
        cpu_options={
            name: options[name] for name in sorted(options) if name not in TOPOLOGY_OPTIONS
        },
        reserved_cpus=report.reserved_cpus,
        memory_policy=report.memory_policy,
        reserved_memory={zone.id: _reserved(zone) for zone in report.zones},
    )


def _reserved(zone: Zone) -> dict[str, int]:
    """What the zone has and the Memory Manager does not hand out, hugepages apart."""
    found = {
        name: r.capacity - r.allocatable for name, r in zone.resources.items() if is_hugepages(name)
    }
    if MEMORY in zone.resources:
        pages = sum(r.capacity for name, r in zone.resources.items() if is_hugepages(name))
        found[MEMORY] = max(
            0, zone.resources[MEMORY].capacity - pages - zone.resources[MEMORY].allocatable
        )
    return found


def _registered(report: Report) -> dict[str, dict[str, Device]]:
    found: dict[str, dict[str, Device]] = {}
    for group in report.devices or ():
        mask = mask_of(group.zones) if group.zones else None
        for ids, healthy in ((group.ids, True), (group.unhealthy, False)):
            found.setdefault(group.resource, {}).update(
                {each: Device(mask, healthy) for each in parse_ids(ids)}
            )
    return found


def _hidden(report: Report, live: Mapping[str, Pod]) -> tuple[str, ...]:
    """Ordinary init containers are told by checkpoints alone; whose uid is in none of them holds
    nothing.
    """
    if report.placements is None:
        return (PLACEMENTS,)
    init = (each for pod in live.values() for each in pod.containers if each.kind == "init")
    wanted = {_manager(name) for each in init for name in each.requests}
    return () if wanted <= {*report.checkpoints, ""} else (INIT_CONTAINERS,)


def _manager(name: str) -> str:
    return (
        "cpu" if name == CPU else "memory" if is_memory(name) else "devices" if "/" in name else ""
    )


def _holdings(report: Report, live: Mapping[str, Pod]) -> Holdings:
    """By uid: what is hidden where it tells the whole pod, else what is listed for the pod's name.
    Raises ValueError.
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
    before = containers.get(placement.container, Held())
    cpus = union(parse_cpus(each.ids) for each in placement.held if each.resource == CPU)
    memory = tuple(
        Block(mask_of(each.zones), each.amount, each.resource)
        for each in placement.held
        if is_memory(each.resource)
    )
    devices: dict[str, frozenset[str]] = dict(before.devices)
    for each in placement.held:
        if each.resource != CPU and not is_memory(each.resource):
            devices[each.resource] = devices.get(each.resource, frozenset()) | frozenset(
                parse_ids(each.ids)
            )
    containers[placement.container] = Held(before.cpus | cpus, (*before.memory, *memory), devices)


def _wide(holdings: Holdings) -> bool:
    """A block over several zones: how it is split is known from the Memory Manager's own figures
    alone.
    """
    held = (
        block
        for containers in holdings.values()
        for each in containers.values()
        for block in each.memory
    )
    return any(block.mask.bit_count() > 1 for block in held)


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
        uid: {name: each.cpus for name, each in held.items() if each.cpus}
        for uid, held in holdings.items()
    }
    kept = {uid: held for uid, held in entries.items() if held}
    return CpuState(
        fresh.shared & ~union(cpus for held in kept.values() for cpus in held.values()), kept
    )


def _device_state(state: DeviceState, holdings: Holdings) -> DeviceState:
    for uid, held in holdings.items():
        for name, each in held.items():
            for resource, ids in each.devices.items():
                state = hold(state, uid, name, resource, ids)
    return state


def _memory_state(fresh: MemoryState, report: Report, holdings: Holdings) -> MemoryState:
    if fresh.config.policy == "None":
        return fresh
    entries = {
        uid: {name: each.memory for name, each in held.items() if each.memory}
        for uid, held in holdings.items()
    }
    kept = {uid: held for uid, held in entries.items() if held}
    nodes: Mapping[int, NodeMemory] = fresh.nodes
    for held in kept.values():
        for block in (block for blocks in held.values() for block in blocks):
            nodes = take(nodes, block)
    told = {zone.id: zone for zone in report.zones} if "memory" in report.checkpoints else {}
    return MemoryState(
        fresh.config, {at: _as_told(node, told.get(at)) for at, node in nodes.items()}, kept
    )


def _as_told(node: NodeMemory, zone: Zone | None) -> NodeMemory:
    """Free bytes and groups are the Memory Manager's own: who came first shapes the groups, and no
    listing tells that.
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
