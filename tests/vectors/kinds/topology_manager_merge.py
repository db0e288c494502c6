"""Vectors of the Topology Manager's merge: hint providers in, best hint and verdict out."""

from __future__ import annotations

from typing import Any

from shared.kubelet.hint import Hint, Hints
from shared.kubelet.masks import mask_of, nodes_of
from shared.kubelet.topology_manager import TopologyManager, merge

KIND = "topology_manager_merge"


def recognises(doc: dict[str, Any]) -> bool:
    return {"providers", "numa_nodes", "policy", "prefer_closest_numa_nodes"} <= set(
        next(iter(doc["cases"]), {})
    )


def check(case: dict[str, Any]) -> list[str]:
    hint, admitted = merge(_manager(case), [_provider(each) for each in case["providers"]])
    mask = None if hint.mask is None else list(nodes_of(hint.mask))
    got = {"mask": mask, "preferred": hint.preferred, "admit": admitted}
    return [
        f"{name}: expected {want}, got {got[name]}"
        for name, want in case["expect"].items()
        if got[name] != want
    ]


def _manager(case: dict[str, Any]) -> TopologyManager:
    nodes = case["numa_nodes"]
    distances = (
        dict(zip(nodes, case["distances"], strict=True))
        if case["prefer_closest_numa_nodes"]
        else None
    )
    return TopologyManager(case["policy"], "container", mask_of(nodes), distances)


def _provider(resources: list[dict[str, Any]] | None) -> Hints:
    if resources is None:
        return None
    return {each["resource"]: _hints(each["hints"]) for each in resources}


def _hints(hints: list[dict[str, Any]] | None) -> list[Hint] | None:
    return None if hints is None else [_hint(each) for each in hints]


def _hint(hint: dict[str, Any]) -> Hint:
    return Hint(None if hint["mask"] is None else mask_of(hint["mask"]), hint["preferred"])
