"""Parse the machine file of `topolog admit`: zones, CPUs, devices and the kubelet's configuration.

Pure: a parsed YAML document in, `MachineFile` or `ManifestError` out. Must not know files, nor how
a pod is admitted.

    zones:                      one entry for each NUMA node
    - id: 0
      cpus: 0-3,8-11            Linux list
      memory: 64Gi              hugepages included
      hugepages: {2Mi: 1024}    page size: number of pages
      distances: [10, 21]       to every zone, in order of id
    cores: ["0,8", "1,9"]       thread siblings; CPUs not listed are cores of their own. Or:
    threads_per_core: 2         CPU i and CPU i + N/2 are siblings
    sockets: ["0-15", "16-31"]  default: one socket
    uncore_caches: ["0-7"]      CPUs that share a last-level cache; default: one for each socket
    kubelet: {...}              fields of a KubeletConfiguration
    kubelet_version: v1.31.4    whose rules it has; default: 1.36
    devices:
      vendor.example/gpu:
      - {id: gpu-0, zones: [0], healthy: true}    without `zones`: no topology
"""

from __future__ import annotations

import msgspec

from services.cli.kubelet_section import NodeSection, kubelet_config, node_section
from shared.domain import fields
from shared.domain.fields import Json, ManifestError, RefusedError, join, refuse
from shared.domain.quantity import QuantityError, amount
from shared.domain.resources import CPU, MEMORY, PODS, Amounts, is_device
from shared.kubelet.config import KubeletConfig, MachineConfig, ZoneConfig
from shared.kubelet.cpuset import each_cpu, parse_cpus
from shared.kubelet.device_state import Device, DevicePool, Registered
from shared.kubelet.masks import mask_of
from shared.kubelet.memory_state import hugepages_name
from shared.kubelet.topology import Cpu
from shared.kubelet.versions import DEFAULT, RULES, KubeletRules, rules_of

# Linux: CONFIG_NODES_SHIFT 10. POWER9 numbers zones up to 255.
MAX_ZONE_ID = 1023
_LIST_REMEDY = "write a Linux list of CPUs such as 0-3,8"
_KNOWN = (
    "zones", "cores", "threads_per_core", "sockets", "uncore_caches", "kubelet", "kubelet_version",
    "devices",
)  # fmt: skip
_KNOWN_OF_ZONE = ("id", "cpus", "memory", "hugepages", "distances")
_KNOWN_OF_DEVICE = ("id", "zones", "healthy")


class MachineFile(msgspec.Struct, frozen=True):
    """The parsed machine file."""

    machine: MachineConfig
    kubelet: KubeletConfig
    devices: Registered
    node: NodeSection = NodeSection()

    def allocatable(self) -> Amounts:
        """Return the Node's allocatable: capacity less reservations, memory also less hugepages.

        Reserved memory is kubeReserved, systemReserved and the hard eviction threshold, or
        reservedMemory if that is more: on a real node the two are equal.
        """
        pages: Amounts = {}
        for zone in self.machine.zones:
            for size, count in zone.hugepages.items():
                pages[hugepages_name(size)] = pages.get(hugepages_name(size), 0) + size * count
        memory = sum(zone.memory_bytes for zone in self.machine.zones)
        by_zone = sum(amounts.get(MEMORY, 0) for amounts in self.kubelet.reserved_memory.values())
        by_node = self.node.reserved_memory_bytes + self.node.eviction_bytes(memory)
        reserved = max(by_node, by_zone)
        return {
            PODS: self.node.max_pods,
            CPU: max(0, len(self.machine.cpus) * 1000 - self._reserved_cpu()),
            MEMORY: max(0, memory - reserved - sum(pages.values())),
            **pages,
        }

    def _reserved_cpu(self) -> int:
        cpu_list = self.kubelet.reserved_cpus
        if not cpu_list:
            return self.kubelet.reserved_cpu_milli
        return len(list(each_cpu(parse_cpus(cpu_list)))) * 1000


def parse_machine(document: object) -> MachineFile | ManifestError:
    """Return the machine of a YAML document, or the wrong field with its value and a remedy."""
    try:
        doc = fields.as_mapping(document, "")
        _refuse_unknown(doc, "", _KNOWN)
        machine = _machine(doc)
        zones = tuple(zone.id for zone in machine.zones)
        kubelet = fields.mapping(doc, "kubelet", "")
        node = node_section(kubelet)
        memory = sum(zone.memory_bytes for zone in machine.zones)
        configured = msgspec.structs.replace(
            kubelet_config(kubelet, node.held_back(memory)), rules=_rules(doc)
        )
        return MachineFile(machine, configured, _devices(doc, zones), node)
    except RefusedError as refused:
        return refused.error


def _rules(doc: Json) -> KubeletRules:
    version = fields.text(doc, "kubelet_version", "")
    possible = rules_of(version) if version else (DEFAULT,)
    if len(possible) == len(RULES):
        raise refuse("kubelet_version", version, "write a version such as v1.31.4")
    return possible[0]


def _refuse_unknown(doc: Json, path: str, keys: tuple[str, ...]) -> None:
    for key in doc:
        if key not in keys:
            raise refuse(join(path, key), doc[key], f"unknown field; use {', '.join(keys)}")


def _machine(doc: Json) -> MachineConfig:
    entries = fields.objects(doc, "zones", "")
    if not entries:
        raise refuse(
            "zones",
            doc.get("zones"),
            "list at least one zone, as `topolog admit --describe` prints them",
        )
    zones = tuple(sorted((_zone(zone, path) for path, zone in entries), key=lambda zone: zone.id))
    _check_zones(zones)
    return MachineConfig(zones, _cpus(doc, entries))


def _zone(doc: Json, path: str) -> ZoneConfig:
    _refuse_unknown(doc, path, _KNOWN_OF_ZONE)
    zone = fields.integer(doc, "id", path, -1)
    if not 0 <= zone <= MAX_ZONE_ID:
        raise refuse(
            join(path, "id"), doc.get("id"), f"write the NUMA node's id, 0 to {MAX_ZONE_ID}"
        )
    if doc.get("memory") is None:
        # Absent is not 0: admission would reject every pod with OutOfmemory.
        raise refuse(
            join(path, "memory"),
            None,
            "write the zone's memory with its hugepages, such as 64Gi, or 0 if it has none",
        )
    return ZoneConfig(
        zone, _bytes(doc, "memory", path), _hugepages(doc, path), _distances(doc, path)
    )


def _check_zones(zones: tuple[ZoneConfig, ...]) -> None:
    ids = [zone.id for zone in zones]
    for index, zone in enumerate(zones):
        if zone.id in ids[:index]:
            raise refuse("zones", ids, f"describe zone {zone.id} once")
        if zone.distances and len(zone.distances) != len(zones):
            raise refuse(
                f"distances of zone {zone.id}",
                zone.distances,
                f"write {len(zones)} numbers, one for each zone",
            )
        pages = sum(size * count for size, count in zone.hugepages.items())
        if pages > zone.memory_bytes:
            raise refuse(
                f"hugepages of zone {zone.id}",
                pages,
                "hugepages are part of memory; write more memory or fewer",
            )


def _bytes(doc: Json, key: str, path: str) -> int:
    return fields.amounts({"all": {"memory": doc.get(key, 0)}}, "all", path)["memory"]


def _hugepages(doc: Json, path: str) -> dict[int, int]:
    field = join(path, "hugepages")
    pages = {}
    for size, count in fields.mapping(doc, "hugepages", path).items():
        if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count < 2**40:
            raise refuse(join(field, size), count, "write the number of pages")
        pages[_page_size(size, field)] = count
    return dict(sorted(pages.items()))


def _page_size(text: str, path: str) -> int:
    try:
        size = amount("memory", text)
    except QuantityError as error:
        raise refuse(path, text, "write a page size such as 2Mi or 1Gi") from error
    if size <= 0:
        raise refuse(path, text, "write a page size such as 2Mi or 1Gi")
    return size


def _distances(doc: Json, path: str) -> tuple[int, ...]:
    distances = fields.items(doc, "distances", path)
    for index, distance in enumerate(distances):
        if isinstance(distance, bool) or not isinstance(distance, int) or not 0 < distance < 256:
            raise refuse(
                f"{join(path, 'distances')}[{index}]",
                distance,
                "write an ACPI distance, 10 to 255",
            )
    return tuple(distances)


def _set(value: object, path: str) -> int:
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(text, str):
        raise refuse(path, value, _LIST_REMEDY)
    try:
        return parse_cpus(text)
    except ValueError as error:
        raise refuse(path, value, f"{_LIST_REMEDY} ({error})") from error


def _cpus(doc: Json, zones: list[tuple[str, Json]]) -> tuple[Cpu, ...]:
    zone_of = {}
    every = 0
    for path, zone in zones:
        cpus = _set(zone.get("cpus", ""), join(path, "cpus"))
        _refuse_twice(cpus & every, join(path, "cpus"))
        every |= cpus
        zone_of.update(dict.fromkeys(each_cpu(cpus), fields.integer(zone, "id", path)))
    if not every:
        raise refuse("zones", doc.get("zones"), "give at least one zone a list of `cpus`")
    sockets = _grouped(doc, "sockets", every) or dict.fromkeys(each_cpu(every), 0)
    cores = _grouped(doc, "cores", every) or _threads(doc, every)
    caches = _grouped(doc, "uncore_caches", every)
    _refuse_missing(doc, "sockets", sockets, every)
    return tuple(
        Cpu(
            cpu,
            cores.get(cpu, len(cores) + cpu),
            sockets[cpu],
            zone_of[cpu],
            caches.get(cpu, len(caches) + sockets[cpu]),
        )
        for cpu in each_cpu(every)
    )


def _grouped(doc: Json, key: str, every: int) -> dict[int, int]:
    """Return CPU -> index of the group that lists it."""
    grouped: dict[int, int] = {}
    seen = 0
    for index, value in enumerate(fields.items(doc, key, "")):
        path = f"{key}[{index}]"
        cpus = _set(value, path)
        _refuse_twice(cpus & seen, path)
        if cpus & ~every or not cpus:
            raise refuse(path, value, "list CPUs that a zone lists too")
        seen |= cpus
        grouped.update(dict.fromkeys(each_cpu(cpus), index))
    return grouped


def _threads(doc: Json, every: int) -> dict[int, int]:
    threads, count = fields.integer(doc, "threads_per_core", "", 1), every.bit_count()
    if threads < 1 or count % threads or (threads > 1 and every != (1 << count) - 1):
        raise refuse(
            "threads_per_core",
            threads,
            f"the machine has {count} CPUs; write a divisor of that (CPU ids without gaps), "
            "or list `cores`",
        )
    return {cpu: cpu % (count // threads) for cpu in each_cpu(every)}


def _refuse_twice(both: int, path: str) -> None:
    if both:
        raise refuse(path, next(each_cpu(both)), "list each CPU once")


def _refuse_missing(doc: Json, key: str, groups: dict[int, int], every: int) -> None:
    missing = [cpu for cpu in each_cpu(every) if cpu not in groups]
    if missing:
        raise refuse(key, doc.get(key), f"list every CPU; {missing[0]} is missing")


def _devices(doc: Json, zones: tuple[int, ...]) -> Registered:
    registered = {}
    for resource in fields.mapping(doc, "devices", ""):
        if not is_device(resource):
            raise refuse(
                join("devices", resource),
                resource,
                "write a device resource such as vendor.example/gpu",
            )
        entries = fields.objects(fields.mapping(doc, "devices", ""), resource, "devices")
        devices = [_device(entry, path, zones) for path, entry in entries]
        pool = dict(devices)
        if len(pool) != len(devices):
            raise refuse(
                join("devices", resource),
                sorted(name for name, _ in devices),
                "give each device a unique id",
            )
        registered[resource] = DevicePool(pool)
    return registered


def _device(doc: Json, path: str, zones: tuple[int, ...]) -> tuple[str, Device]:
    _refuse_unknown(doc, path, _KNOWN_OF_DEVICE)
    name = fields.text(doc, "id", path)
    if not name:
        raise refuse(join(path, "id"), name, "write the device's id")
    healthy = fields.flag(doc, "healthy", path) if doc.get("healthy") is not None else True
    if doc.get("zones") is None:
        return name, Device(None, healthy)
    device_zones = fields.items(doc, "zones", path)
    for index, zone in enumerate(device_zones):
        if isinstance(zone, bool) or not isinstance(zone, int) or zone not in zones:
            raise refuse(
                f"{join(path, 'zones')}[{index}]",
                zone,
                f"write ids of zones: {', '.join(map(str, zones))}",
            )
    return name, Device(mask_of(device_zones), healthy)
