"""Reading the shapes that several kinds of kubelet vectors share: pods, hints, memory nodes,
machine states.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shared.domain.manifest import ManifestError, pod_from_manifest
from shared.domain.pod import Pod, Qos
from shared.kubelet.hint import Hint, Hints
from shared.kubelet.masks import mask_of, nodes_of
from shared.kubelet.memory_state import Block, NodeMemory, NodeMemoryConfig

Json = dict[str, Any]


def pod_of(doc: Json, qos: Qos | None = None) -> Pod:
    """A pod of the vectors: `uid`, `containers`, `init_containers` with `restart_policy`, optional
    `resources`.
    """
    spec: Json = {
        "containers": doc["containers"],
        "initContainers": [_init(c) for c in doc.get("init_containers") or []],
    }
    if doc.get("resources") is not None:
        spec["resources"] = doc["resources"]
    spec["containers"] = [_container(container) for container in doc["containers"]]
    uid = doc.get("uid", "pod")
    manifest: Json = {"metadata": {"name": uid, "namespace": "default", "uid": uid}, "spec": spec}
    if qos is not None:
        manifest["status"] = {"qosClass": qos}
    pod = pod_from_manifest(manifest)
    if isinstance(pod, ManifestError):
        raise ValueError(str(pod))
    return pod


def _container(doc: Json) -> Json:
    resources = {key: doc[key] for key in ("requests", "limits") if doc.get(key)}
    return {"name": doc["name"], "resources": resources}


def _init(doc: Json) -> Json:
    return {**_container(doc), "restartPolicy": doc.get("restart_policy")}


def hint_of(doc: Json) -> Hint:
    """`{"mask": [ids] | null, "preferred": bool}` as a hint."""
    return Hint(None if doc["mask"] is None else mask_of(doc["mask"]), doc["preferred"])


def hint_list(hints: list[Hint] | None) -> list[Json] | None:
    """Return one resource's hints in the form of the vectors."""
    if hints is None:
        return None
    return [
        {"mask": None if h.mask is None else list(nodes_of(h.mask)), "preferred": h.preferred}
        for h in hints
    ]


def hint_map(hints: Hints) -> Json | None:
    """A provider's hints as the vectors write them."""
    return (
        None if hints is None else {resource: hint_list(entry) for resource, entry in hints.items()}
    )


def memory_nodes(docs: list[Json]) -> tuple[NodeMemoryConfig, ...]:
    """`numa_nodes` of the memory vectors as the manager's configuration."""
    return tuple(
        NodeMemoryConfig(
            id=doc["id"],
            memory_bytes=doc["memory"],
            hugepages=tuple(
                (page["page_size_kib"] * 1024, page["num_pages"]) for page in doc["hugepages"]
            ),
            reserved=doc["reserved"],
        )
        for doc in sorted(docs, key=lambda doc: int(doc["id"]))
    )


def machine_json(nodes: Mapping[int, NodeMemory]) -> Json:
    """The memory tables as the kubelet's checkpoint writes them."""
    return {
        str(node_id): {
            "numberOfAssignments": node.assignments,
            "cells": list(nodes_of(node.cells)),
            "memoryMap": {
                resource: {
                    "total": table.total,
                    "systemReserved": table.system_reserved,
                    "allocatable": table.allocatable,
                    "reserved": table.reserved,
                    "free": table.free,
                }
                for resource, table in node.tables.items()
            },
        }
        for node_id, node in nodes.items()
    }


def block_list(blocks: tuple[Block, ...]) -> list[Json]:
    """Blocks as the vectors write them, sorted by type."""
    ordered = sorted(blocks, key=lambda block: block.resource)
    return [
        {"numaAffinity": list(nodes_of(b.mask)), "type": b.resource, "size": b.size}
        for b in ordered
    ]


def differ(what: str, ours: object, recorded: object) -> list[str]:
    """Return no difference, or one text with both sides."""
    return [] if ours == recorded else [f"{what}: ours {ours!r}, recorded {recorded!r}"]
