"""Vectors of the OverReserve cache: scripted sequences with the whole observable state after every
step.

A resync is one step (`resync`), or three (`desynced`, `updates`, `flush`) with others between them.
"""

from __future__ import annotations

from typing import Any

from plugins.upstream_compat.foreign import Profiles
from plugins.upstream_compat.nrt import Nrt, parse_nrt
from plugins.upstream_compat.overreserve import Desynced, OverReserve, Settings
from plugins.upstream_compat.pod import Pod, parse_pod
from shared.domain.quantity import parse
from tests.vectors.registry import has_keys

KIND = "cache_overreserve"


def recognises(doc: dict[str, Any]) -> bool:
    return has_keys(doc, "config", "initial_nrts", "steps")


def check(case: dict[str, Any]) -> list[str]:
    script = _Script(case)
    for number, step in enumerate(case["steps"]):
        problems = script.play(step)
        if problems:
            return [f"step {number} ({step['op']}): {problem}" for problem in problems]
    return []


class _Script:
    """The cache with the API and the pod lister around it."""

    def __init__(self, case: dict[str, Any]) -> None:
        config = case["config"]
        self.api: dict[str, Nrt] = {nrt.name: nrt for nrt in map(parse_nrt, case["initial_nrts"])}
        self.pods: list[Pod] = []
        self.nodes: list[str] = case["nodes"]
        self.dirty = Desynced((), ())
        self.updates: list[Nrt] = []
        detection = config["foreign_pods_detect"]
        self.cache = OverReserve(
            self.api.values(),
            Profiles(config["scheduler_profile_names"], detection),
            Settings(
                detection != "None",
                config["resync_method"],
                config["informer_mode"],
                config["resync_scope"] == "All",
            ),
        )

    def play(self, step: dict[str, Any]) -> list[str]:
        """Carry out the step. Return the differences from the recorded state after it."""
        watched = self._do(step)
        if "watch_result" in step and watched != step["watch_result"]:
            return [f"watch result: expected {step['watch_result']}, got {watched}"]
        want = _numbers(step["after"])
        return [
            f"{name}: expected {want[name]}, got {got}"
            for name, got in self._state().items()
            if got != want[name]
        ]

    def _do(self, step: dict[str, Any]) -> bool | None:
        match step["op"]:
            case "init" | "set_pods":
                self.pods = [parse_pod(raw) for raw in step["pods"]]
            case "reserve":
                self.cache.reserve(step["node"], parse_pod(step["pod"]))
            case "unreserve":
                self.cache.unreserve(step["node"], parse_pod(step["pod"]))
            case "node_maybe_overreserved":
                self.cache.node_maybe_overreserved(step["node"])
            case "pod_informer_event":
                self.pods = [parse_pod(raw) for raw in step["pods_after"]]
                self.cache.pod_event(parse_pod(step["pod"]))
            case "api_nrt_set":
                self.api[step["node"]] = parse_nrt(step["nrt"])
                return self.cache.nrt_event(step["event"], self.api[step["node"]])
            case "api_nrt_delete":
                self.api.pop(step["node"], None)
            case "post_bind":
                self.cache.post_bind(step["node"], parse_pod(step["pod"]))
            case "resync":
                self.cache.resync(self.api.get, self.pods)
            case "desynced":
                self.dirty = self.cache.desynced()
            case "updates":
                self.updates = self.cache.updates(self.dirty, self.api.get, self.pods)
            case "flush":
                self.cache.flush(self.updates)
            case unknown:
                raise ValueError(f"step {unknown} is not known to this runner")
        return None

    def _state(self) -> dict[str, Any]:
        dirty = self.cache.desynced()
        return {
            "generation": self.cache.generation,
            "desynced": {
                "config_changed": list(dirty.config_changed),
                "maybe_overreserved": list(dirty.maybe_overreserved),
            },
            "counters": {
                "attr_update": dict(self.cache.attr_update),
                "foreign": dict(self.cache.foreign),
                "maybe_overreserved": dict(self.cache.maybe_overreserved),
            },
            "nodes": {node: self._node(node) for node in self.nodes},
        }

    def _node(self, node: str) -> dict[str, Any]:
        view = self.cache.view(node, self.api.get)
        return {
            "assumed_pods": sorted(self.cache.assumed.get(node, {})),
            "fresh": view.fresh,
            "nrt": _seen(view.nrt) if view.nrt else None,
        }


def _seen(nrt: Nrt) -> dict[str, Any]:
    manager = nrt.manager
    zones = [
        {
            "name": zone.name,
            "available": {each.name: each.available.nano for each in zone.resources},
        }
        for zone in nrt.zones
    ]
    settings = {
        "max_numa_nodes": manager.max_numa_nodes,
        "policy": manager.policy,
        "scope": manager.scope,
    }
    return {"topology_manager": settings, "zones": zones}


def _numbers(after: dict[str, Any]) -> dict[str, Any]:
    """The observed state with quantities as numbers."""
    return {
        **after,
        "nodes": {name: _numbers_of_node(node) for name, node in after["nodes"].items()},
    }


def _numbers_of_node(node: dict[str, Any]) -> dict[str, Any]:
    if node["nrt"] is None:
        return node
    zones = [
        {**zone, "available": {name: parse(text).nano for name, text in zone["available"].items()}}
        for zone in node["nrt"]["zones"]
    ]
    return {**node, "nrt": {**node["nrt"], "zones": zones}}
