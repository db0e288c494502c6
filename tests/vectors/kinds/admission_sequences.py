"""Vectors of whole admission sequences on one machine: pods admitted, started (all their
containers, or the first so many), removed, devices listed again by their plugin, kubelets restarted
(with the plugins' later lists, if recorded).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec

from shared.domain.pod import Pod
from shared.kubelet.admission import (
    Admission,
    ContainerAssignment,
    admit,
    drop_stale,
    remove,
    restart,
    start_container,
)
from shared.kubelet.checkpoint import CpuCheckpoint, write_cpu
from shared.kubelet.config import KubeletConfig, MachineConfig, ZoneConfig
from shared.kubelet.cpuset import format_cpus
from shared.kubelet.device_manager import Preferred
from shared.kubelet.device_state import Device, Registered, register
from shared.kubelet.machine import KubeletState, build
from shared.kubelet.masks import mask_of, nodes_of
from shared.kubelet.options import ConfigError
from shared.kubelet.topology import Cpu
from shared.kubelet.versions import DEFAULT, KubeletRules, rules_of
from tests.vectors.shapes import block_list, hint_list, machine_json, pod_of

KIND = "admission_sequences"
Json = dict[str, Any]


def recognises(doc: Json) -> bool:
    return {"ops", "kubelet", "machine", "devices", "final"} <= set(next(iter(doc["cases"]), {}))


def cases(doc: Json) -> Iterator[Json]:
    """Each case once for each minor version of which it was recorded: `minors` or `minor` of the
    case, else the version of the file.
    """
    for case in doc["cases"]:
        minors = case.get("minors", [case.get("minor", doc.get("kubernetes_version", ""))])
        for minor in minors:
            name = case["id"] if len(minors) == 1 else f"{case['id']} on 1.{minor}"
            yield {**case, "id": name, "minor": minor}


def rules_of_case(case: Json) -> KubeletRules:
    """`minor` is a number such as 31, a minor such as 1.31, or a whole version."""
    minor = case.get("minor", "")
    if not minor:
        return DEFAULT
    return rules_of(f"v1.{minor}.0" if str(minor).isdigit() else str(minor))[0]


def started(case: Json) -> KubeletState | ConfigError:
    """Return the kubelet of a case before its first pod."""
    return build(_machine(case["machine"]), _config(case), _devices(case["devices"]))


def check(case: Json) -> list[str]:
    built = started(case)
    if isinstance(built, ConfigError):
        return [f"does not start: {built.message}"]
    prefer = preference(case["plugin_preferred_allocation"])
    differences: list[str] = []
    state: KubeletState | None = built
    for index, op in enumerate(case["ops"]):
        if state is None:
            return [*differences, f"op {index}: the kubelet should be running"]
        state, wrong = play(state, op, prefer)
        differences += [f"op {index} {op['op']}: {text}" for text in wrong]
    final = None if state is None else _recorded(_final(drop_stale(state)), case["final"])
    return differences + _compare("final", final, case["final"])


def play(
    state: KubeletState, op: Json, prefer: Preferred | None
) -> tuple[KubeletState | None, list[str]]:
    """Return the kubelet after one recorded step (None if it does not restart), and the differences
    from the record.
    """
    if op["op"] == "admit":
        return _admit(state, op, prefer)
    if op["op"] == "start" and op["uid"] not in state.pods:
        return state, [f"{op['uid']} should be active"]
    if op["op"] == "start":
        return _started(state, state.pods[op["uid"]].pod, op.get("containers")), []
    if op["op"] == "remove":
        return remove(state, op["uid"]), []
    if op["op"] == "devices":
        return _listed(state, op["resource"], op["devices"]), []
    return _restart(state, op, prefer)


def _started(state: KubeletState, pod: Pod, first: int | None) -> KubeletState:
    for container in pod.containers[:first]:
        state = start_container(state, pod, container.name)
    return state


def _listed(state: KubeletState, resource: str, devices: list[Json]) -> KubeletState:
    by_id = _devices({resource: devices})[resource]
    return msgspec.structs.replace(state, devices=register(state.devices, resource, by_id))


def _admit(
    state: KubeletState, op: Json, prefer: Preferred | None
) -> tuple[KubeletState, list[str]]:
    pod = pod_of(op["pod"])
    verdict = admit(state, pod, prefer=prefer)
    got = _recorded(_verdict(verdict, pod), op["expect"])
    return verdict.state, _compare(pod.uid, got, op["expect"])


def _recorded(got: Json, expect: Json | None) -> Json:
    """Return what the record has, too: those with pod-level managers have no messages and no
    containers, because the model has one pool in their place."""
    return {name: value for name, value in got.items() if name in (expect or got)}


def _restart(
    state: KubeletState, op: Json, prefer: Preferred | None
) -> tuple[KubeletState | None, list[str]]:
    expect, devices = op["expect"], op.get("devices")
    registered: Registered = {resource: {} for resource in state.devices.registered}
    restarted = restart(
        state,
        devices=None if devices is None else {**registered, **_devices(devices)},
        prefer=prefer,
    )
    if isinstance(restarted, ConfigError):
        return None, _compare("restart", {"start_error": restarted.message}, expect)
    pods = {uid: active.pod for uid, active in state.pods.items()}
    got = [{**_verdict(verdict, pods[uid]), "uid": uid} for uid, verdict in restarted.readmissions]
    return restarted.state, _compare("restart", {"readmissions": got}, expect)


def _compare(what: str, got: Any, wanted: Any) -> list[str]:
    if isinstance(got, dict) and isinstance(wanted, dict):
        names = sorted({*got, *wanted})
        return [
            text
            for name in names
            for text in _compare(f"{what}.{name}", got.get(name), wanted.get(name))
        ]
    if isinstance(got, list) and isinstance(wanted, list) and len(got) == len(wanted):
        pairs = enumerate(zip(got, wanted, strict=True))
        return [
            text for at, (one, other) in pairs for text in _compare(f"{what}[{at}]", one, other)
        ]
    return [] if got == wanted else [f"{what}: expected {wanted!r}, got {got!r}"]


def _verdict(verdict: Admission, pod: Pod) -> Json:
    if not verdict.admitted:
        return {
            "admitted": False,
            "qos": pod.qos,
            "reason": verdict.reason,
            "message": verdict.message,
        }
    containers = {each.name: _container(each) for each in verdict.containers}
    return {
        "admitted": True,
        "qos": pod.qos,
        "containers": containers,
        "state": _state(verdict.state),
    }


def _container(assignment: ContainerAssignment) -> Json:
    shown: Json = {
        "hint": (hint_list([assignment.hint]) or [{}])[0],
        "exclusive_cpus": assignment.cpu_list,
    }
    if assignment.memory:
        shown["memory"] = block_list(assignment.memory)
    if assignment.devices:
        shown["devices"] = {resource: list(ids) for resource, ids in assignment.devices.items()}
    return shown


def _state(state: KubeletState) -> Json:
    shown: Json = {"shared_cpus": format_cpus(state.cpu.shared)}
    if state.memory.config.policy == "Static":
        shown["memory"] = {
            str(zone): {
                "assignments": node.assignments,
                "cells": list(nodes_of(node.cells)),
                "free": {resource: table.free for resource, table in node.tables.items()},
            }
            for zone, node in state.memory.nodes.items()
        }
    return shown


def _final(state: KubeletState) -> Json:
    return {
        "state": _state(state),
        "cpu_manager_state": _cpu_file(state),
        "memory_manager_state": _memory_file(state),
    }


def _cpu_file(state: KubeletState) -> Json:
    policy = state.kubelet.cpu.policy
    written: Json = json.loads(
        write_cpu(CpuCheckpoint(policy, state.cpu.shared, state.cpu.entries))
    )
    return written


def _memory_file(state: KubeletState) -> Json:
    if state.memory.config.policy != "Static":
        return {"policyName": "None", "machineState": {}}
    entries = {
        uid: {name: block_list(blocks) for name, blocks in containers.items()}
        for uid, containers in state.memory.entries.items()
    }
    shown: Json = {"policyName": "Static", "machineState": machine_json(state.memory.nodes)}
    return {**shown, "entries": entries} if entries else shown


def _machine(machine: Json) -> MachineConfig:
    zones = tuple(
        ZoneConfig(
            int(zone),
            memory["memory"],
            {page["page_size_kib"] * 1024: page["num_pages"] for page in memory["hugepages"]},
            tuple(distances),
        )
        for (zone, memory), distances in zip(
            sorted(machine["memory"].items(), key=_zone), machine["distances"], strict=True
        )
    )
    return MachineConfig(zones, tuple(Cpu(*row) for row in machine["cpus"]))


def _zone(item: tuple[str, Json]) -> int:
    return int(item[0])


def _config(case: Json) -> KubeletConfig:
    kubelet = case["kubelet"]
    memory = case["machine"]["memory"]
    return KubeletConfig(
        topology_policy=kubelet["topology_manager_policy"],
        topology_scope=kubelet["topology_manager_scope"],
        topology_options=kubelet["topology_manager_policy_options"],
        cpu_policy=kubelet["cpu_manager_policy"],
        cpu_options=kubelet["cpu_manager_policy_options"],
        reserved_cpus=kubelet["reserved_system_cpus"] or "",
        reserved_cpu_milli=kubelet["reserved_cpu_count"] * 1000,
        memory_policy=kubelet["memory_manager_policy"],
        reserved_memory={
            int(zone): {"memory": each["reserved_memory"]} for zone, each in memory.items()
        },
        alpha_cpu_options=True,
        pod_level_managers=kubelet.get("pod_level_managers", False),
        rules=rules_of_case(case),
    )


def _devices(devices: Json) -> Registered:
    return {
        resource: {
            device["id"]: Device(
                None if device["numa"] is None else mask_of(device["numa"]), device["healthy"]
            )
            for device in listed
        }
        for resource, listed in devices.items()
    }


def preference(by_resource: dict[str, bool]) -> Preferred | None:
    """The recorded plugin: what must be included, then the lowest ids."""

    def prefer(
        resource: str, available: frozenset[str], required: frozenset[str], size: int
    ) -> frozenset[str]:
        if not by_resource.get(resource):
            return frozenset()
        return required.union(sorted(available - required)[: size - len(required)])

    return prefer if any(by_resource.values()) else None
