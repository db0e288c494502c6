"""The kubelet section of a machine file: the KubeletConfiguration fields that admission depends on.

Other fields of a KubeletConfiguration are accepted and ignored, so that a node's file can be pasted
in. Defaults are the kubelet's (1.36). Must not know how the managers use a value: they refuse wrong
values with the kubelet's messages.
"""

from __future__ import annotations

import msgspec

from shared.domain import fields
from shared.domain.fields import Json, join, refuse
from shared.domain.report import POD_LEVEL_GATE
from shared.domain.resources import CPU, MEMORY, Amounts
from shared.kubelet.config import KubeletConfig

ALPHA_GATE = "CPUManagerPolicyAlphaOptions"
DEFAULT_MAX_PODS = 110
DEFAULT_EVICTION = "100Mi"


class NodeSection(msgspec.Struct, frozen=True):
    """Settings of the node-level check: reserved memory, the hard eviction threshold of memory
    (bytes, or a share of the machine's memory), and the maximal number of pods."""

    reserved_memory_bytes: int = 0
    eviction: int | float = 100 * 2**20
    max_pods: int = DEFAULT_MAX_PODS

    def eviction_bytes(self, memory_bytes: int) -> int:
        """Return the threshold in bytes."""
        if isinstance(self.eviction, float):
            return int(memory_bytes * self.eviction)
        return self.eviction

    def held_back(self, memory_bytes: int) -> Amounts:
        """Return the memory that Node Allocatable reserves, {} if it is 0."""
        held_back = self.reserved_memory_bytes + self.eviction_bytes(memory_bytes)
        return {MEMORY: held_back} if held_back else {}


def node_section(doc: Json, path: str = "kubelet") -> NodeSection:
    """Return the node-level settings. Raises RefusedError with the field."""
    reserved = sum(
        fields.amounts(doc, name, path).get(MEMORY, 0)
        for name in ("kubeReserved", "systemReserved")
    )
    max_pods = fields.integer(doc, "maxPods", path) or DEFAULT_MAX_PODS
    if max_pods < 0:
        raise refuse(join(path, "maxPods"), max_pods, "write the maximal number of pods")
    return NodeSection(reserved, _eviction(doc, path), max_pods)


def _eviction(doc: Json, path: str) -> int | float:
    """Return the hard eviction threshold: bytes, or a share of the machine's memory.

    A map that is given replaces the defaults, unless mergeDefaultEvictionSettings is true
    (kubernetes PR 127577). 0% and 100% switch the threshold off, as in the kubelet.
    """
    field = join(path, "evictionHard")
    is_default = doc.get("evictionHard") is None or fields.flag(
        doc, "mergeDefaultEvictionSettings", path
    )
    thresholds = fields.texts(doc, "evictionHard", path)
    text = thresholds.get("memory.available", DEFAULT_EVICTION if is_default else "0%")
    if not text.endswith("%"):
        return fields.amounts({"all": {MEMORY: text}}, "all", field)[MEMORY]
    try:
        share = float(text[:-1]) / 100
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise refuse(
            join(field, "memory.available"),
            text,
            "write an amount such as 100Mi or a share such as 5%",
        )
    return 0 if share == 1 else share


def kubelet_config(
    doc: Json, node_reservation: Amounts | None = None, path: str = "kubelet"
) -> KubeletConfig:
    """Return the settings of a KubeletConfiguration. Raises RefusedError naming the field."""
    return KubeletConfig(
        topology_policy=fields.text(doc, "topologyManagerPolicy", path) or "none",
        topology_scope=fields.text(doc, "topologyManagerScope", path) or "container",
        topology_options=fields.texts(doc, "topologyManagerPolicyOptions", path),
        cpu_policy=fields.text(doc, "cpuManagerPolicy", path) or "none",
        cpu_options=fields.texts(doc, "cpuManagerPolicyOptions", path),
        reserved_cpus=_reserved_cpus(doc, path),
        reserved_cpu_milli=0 if doc.get("reservedSystemCPUs") else _reserved_cpu_milli(doc, path),
        memory_policy=fields.text(doc, "memoryManagerPolicy", path) or "None",
        reserved_memory=_reserved_memory(doc, path),
        node_reservation=node_reservation,
        alpha_cpu_options=_gate(doc, ALPHA_GATE, path),
        pod_level_managers=_gate(doc, POD_LEVEL_GATE, path),
    )


def _reserved_cpus(doc: Json, path: str) -> str:
    value = doc.get("reservedSystemCPUs")
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return fields.text(doc, "reservedSystemCPUs", path)


def _reserved_cpu_milli(doc: Json, path: str) -> int:
    sections = (fields.amounts(doc, name, path) for name in ("kubeReserved", "systemReserved"))
    return sum(section.get(CPU, 0) for section in sections)


def _reserved_memory(doc: Json, path: str) -> dict[int, Amounts]:
    reserved: dict[int, Amounts] = {}
    for entry_path, entry in fields.objects(doc, "reservedMemory", path):
        zone = fields.integer(entry, "numaNode", entry_path, -1)
        if zone < 0 or zone in reserved:
            raise refuse(
                join(entry_path, "numaNode"),
                entry.get("numaNode"),
                "write the id of a zone, each zone once",
            )
        reserved[zone] = fields.amounts(entry, "limits", entry_path)
    return reserved


def _gate(doc: Json, name: str, path: str) -> bool:
    gates = fields.mapping(doc, "featureGates", path)
    return fields.flag(gates, name, join(path, "featureGates"))
