"""Annotations that koordlet, Koordinator's node agent, writes on NodeResourceTopology objects.

1. The zones of its objects have the machine's amounts. Neither the kubelet's reserved CPUs nor the
   pods are subtracted, `available` is always `allocatable`, and there is no fingerprint.

2. `cpu-topology` has the CPUs, `cpu-manager-policy` the kubelet's policy, options and reserved
   CPUs, and `pod-cpu-allocs` the exclusive CPUs of each pod by the CPU Manager's checkpoint, with
   uid. koordlet leaves out pods labelled LS or BE and pods with CPUs chosen by koord-scheduler.
   If the CPU Manager is not static, the list is what koordlet states of pods (`Report.enforced`).

3. `reservation` and `system-qos-resource` have CPUs that koordlet keeps from pods.

4. Nothing says whether the Memory Manager is static. If the CPU Manager is not, it is taken as
   None. Otherwise memory counts as managed, and as not listed (`Report.unlisted`).

5. Without an answer of the kubelet (`DisableQueryKubeletConfig`) koordlet writes an empty policy
   and `None` as topology policy. Both are then unknown.

Source: koordinator a7a1b76b (apis/extension/numa_aware.go, koordlet's nodeTopoInformer).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypeVar

import msgspec

from shared.domain.report import (
    KOORDLET,
    POD_LEVEL,
    UNKNOWN,
    Placement,
    Report,
    Zone,
    ZonedAmount,
    ZoneResource,
)
from shared.domain.resources import CPU, is_memory
from shared.kubelet.cpu_options import ALIGN_UNCORE
from shared.kubelet.cpu_policy import STATIC
from shared.kubelet.cpuset import cpus_of, format_cpus, parse_cpus
from shared.kubelet.layout import layout_of
from shared.kubelet.topology import Cpu

CPU_TOPOLOGY = "node.koordinator.sh/cpu-topology"
POD_CPU_ALLOCS = "node.koordinator.sh/pod-cpu-allocs"
RESERVATION = "node.koordinator.sh/reservation"
SYSTEM_QOS = "node.koordinator.sh/system-qos-resource"
CPU_MANAGER_POLICY = "kubelet.koordinator.sh/cpu-manager-policy"
# The namespace of CPUs that a checkpoint has for a pod that koordlet does not know.
UNNAMED = "unnamed"
MILLI = 1000

# What `TOPOLOG_KOORDLET_MEMORY_POLICY` may say: paragraph 4, or that no Memory Manager is static.
MemoryPolicy = Literal["auto", "None"]


class _Cpu(msgspec.Struct):
    id: int
    core: int
    socket: int
    node: int


class _Topology(msgspec.Struct):
    detail: list[_Cpu] = []


class _Alloc(msgspec.Struct):
    namespace: str = ""
    name: str = ""
    uid: str = ""
    cpuset: str = ""
    managedByKubelet: bool = False  # noqa: N815 - the name in the JSON document


class _Manager(msgspec.Struct):
    policy: str = ""
    options: dict[str, str] | None = None
    reservedCPUs: str = ""  # noqa: N815 - the name in the JSON document


class _Reservation(msgspec.Struct):
    reservedCPUs: str = ""  # noqa: N815 - the name in the JSON document


class _SystemQos(msgspec.Struct):
    cpuset: str = ""
    cpusetExclusive: bool | None = None  # noqa: N815 - the name in the JSON document


class AnnotationError(ValueError):
    """An annotation cannot be read; names key and problem."""


def is_by_koordlet(annotations: Mapping[str, str]) -> bool:
    return CPU_TOPOLOGY in annotations and CPU_MANAGER_POLICY in annotations


def with_facts(
    report: Report, annotations: Mapping[str, str], memory_policy: MemoryPolicy
) -> Report:
    """Return the report of an object by koordlet, completed by its annotations. Raises
    AnnotationError."""
    topology = _read(annotations, CPU_TOPOLOGY, _Topology)
    manager = _read(annotations, CPU_MANAGER_POLICY, _Manager)
    allocs = _read(annotations, POD_CPU_ALLOCS, list[_Alloc])
    options = manager.options or {}
    cpus = [Cpu(cpu.id, cpu.core, cpu.socket, cpu.node, 0) for cpu in topology.detail]
    layout = layout_of(cpus)
    if options.get(ALIGN_UNCORE) == "true":  # only this option looks at caches
        layout = msgspec.structs.replace(layout, caches="")
    report = msgspec.structs.replace(report, exporter=KOORDLET, enforcer=KOORDLET, cpus=layout)
    if not manager.policy:
        return msgspec.structs.replace(report, policy=UNKNOWN)
    in_zone = {zone.id: cpus_of([c.id for c in cpus if c.numa == zone.id]) for zone in report.zones}
    is_static = manager.policy == STATIC
    reserved = _cpu_list(CPU_MANAGER_POLICY, manager.reservedCPUs)
    reserved |= 0 if is_static else _kept_by_koordlet(annotations)
    placements = _placements(allocs, in_zone, is_static)
    managed_allocs = [alloc.cpuset for alloc in allocs if alloc.managedByKubelet and alloc.cpuset]
    assigned = _cpu_list(POD_CPU_ALLOCS, ",".join(managed_allocs))
    managed = cpus_of([cpu.id for cpu in cpus]) & ~reserved
    no_memory_manager = memory_policy == "None" or not is_static
    zones = tuple(
        [
            _zone(zone, in_zone[zone.id], managed, assigned, no_memory_manager)
            if is_static
            else _unpinned(zone, in_zone[zone.id], reserved)
            for zone in report.zones
        ]
    )
    tracked = tuple(
        sorted(
            {n for zone in zones for n, amounts in zone.resources.items() if amounts.allocatable}
        )
    )
    return msgspec.structs.replace(
        report,
        zones=zones,
        tracked=tracked,
        placements=placements if is_static else (),
        enforced=None if is_static else placements,
        unlisted=tuple([name for name in tracked if name != CPU]),
        options=options,
        cpu_policy=manager.policy,
        memory_policy="None" if no_memory_manager else UNKNOWN,
        reserved_cpus=format_cpus(reserved),
    )


T = TypeVar("T")


def _read(annotations: Mapping[str, str], key: str, kind: type[T]) -> T:
    try:
        text = annotations.get(key, "")
        return kind() if text in ("", "null") else msgspec.json.decode(text, type=kind)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise AnnotationError(f"annotation {key}: {error}") from error


def _cpu_list(key: str, text: str) -> int:
    try:
        return parse_cpus(text)
    except ValueError as error:
        raise AnnotationError(f"annotation {key}: {error}") from error


def _kept_by_koordlet(annotations: Mapping[str, str]) -> int:
    """Return the CPUs that koordlet keeps from pods: reserved ones, and those of system pods unless
    these share them. A kubelet that allocates CPUs does not know of them."""
    reserved = _read(annotations, RESERVATION, _Reservation)
    system = _read(annotations, SYSTEM_QOS, _SystemQos)
    cpus = _cpu_list(RESERVATION, reserved.reservedCPUs)
    shares = system.cpusetExclusive is False
    return cpus | (0 if shares else _cpu_list(SYSTEM_QOS, system.cpuset))


def _placements(
    allocs: Sequence[_Alloc], in_zone: Mapping[int, int], is_static: bool
) -> tuple[Placement, ...]:
    """Return one placement a pod: the checkpoint's containers are summed. A static CPU Manager has
    given only the sets marked as the kubelet's."""
    placements = []
    for alloc in allocs:
        is_held = alloc.managedByKubelet or not is_static
        cpus = _cpu_list(POD_CPU_ALLOCS, alloc.cpuset) if is_held else 0
        assigned = tuple(
            [
                ZonedAmount(CPU, (zone,), shared.bit_count() * MILLI, format_cpus(shared))
                for zone, every in in_zone.items()
                if (shared := cpus & every)
            ]
        )
        if assigned:
            namespace, name = (alloc.namespace, alloc.name) if alloc.name else (UNNAMED, alloc.uid)
            placements.append(Placement(namespace, name, POD_LEVEL, assigned, alloc.uid))
    return tuple(sorted(placements, key=lambda entry: (entry.namespace, entry.pod)))


def _zone(zone: Zone, cpus: int, managed: int, assigned: int, no_memory_manager: bool) -> Zone:
    """Return the zone with its CPUs counted, and memory that no manager pins as a bound."""
    offered = cpus & managed
    free = (offered & ~assigned).bit_count() * MILLI
    counted = ZoneResource(cpus.bit_count() * MILLI, offered.bit_count() * MILLI, free)
    resources = dict(sorted({**zone.resources, CPU: counted}.items()))
    unpinned = [name for name in resources if no_memory_manager and is_memory(name)]
    bounds = {name: resources.pop(name).allocatable for name in unpinned}
    return msgspec.structs.replace(zone, resources=resources, bounds=bounds)


def _unpinned(zone: Zone, cpus: int, reserved: int) -> Zone:
    """Return a zone of which the kubelet pins neither CPUs nor memory, as exporters write it: both
    are bounds, and offered to a scheduler that chooses zones. koordlet keeps CPUs from pods, and no
    memory."""
    capacity = cpus.bit_count() * MILLI
    memory = {name: r.allocatable for name, r in zone.resources.items() if is_memory(name)}
    others = {name: r for name, r in zone.resources.items() if not is_memory(name)}
    bounds = dict(sorted({**memory, CPU: capacity}.items()))
    return msgspec.structs.replace(
        zone,
        resources=dict(sorted({**others, CPU: ZoneResource(capacity, 0, 0)}.items())),
        bounds=bounds,
        offered={**bounds, CPU: (cpus & ~reserved).bit_count() * MILLI},
    )
