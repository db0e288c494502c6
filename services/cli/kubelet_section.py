"""The kubelet's configuration in a machine file: fields of a KubeletConfiguration, those that admission depends on.

Other fields of a KubeletConfiguration are accepted and ignored, so that a node's own file can be pasted in. Defaults are
the kubelet's (1.36). Must not know what the managers do with a value: they refuse wrong ones in the kubelet's words.
"""

from __future__ import annotations

from shared.domain import fields
from shared.domain.fields import Json, join, refuse
from shared.domain.resources import CPU, Amounts
from shared.kubelet.config import KubeletConfig

ALPHA_GATE = "CPUManagerPolicyAlphaOptions"


def kubelet_config(doc: Json, path: str = "kubelet") -> KubeletConfig:
    """The settings of a KubeletConfiguration. Raises RefusedError naming the field."""
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
        alpha_cpu_options=_gate(doc, path),
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
    for where, entry in fields.objects(doc, "reservedMemory", path):
        zone = fields.integer(entry, "numaNode", where, -1)
        if zone < 0 or zone in reserved:
            raise refuse(join(where, "numaNode"), entry.get("numaNode"), "write the id of a zone, each zone once")
        reserved[zone] = fields.amounts(entry, "limits", where)
    return reserved


def _gate(doc: Json, path: str) -> bool:
    gates = fields.mapping(doc, "featureGates", path)
    return fields.flag(gates, ALPHA_GATE, join(path, "featureGates"))
