"""Clusters as the peers' cases describe them: nodes by zones or as a machine of the kubelet model,
the pods that run there, and the report that Topolog receives about each node.

`report: bus` is a report with placements, as Topolog's exporter makes it (the default for a
machine). `report: nrt` takes the way of a NodeResourceTopology object, fingerprint and comparison
included (the default for zones). The form is described in `data/README.md`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from services.exporter import core as exporter
from services.scheduler.filter.pod_manifest import read_pod
from services.scheduler.snapshot.config import CycleConfig
from services.simulator import reading
from shared.domain import quantity
from shared.domain.pod import Pod
from shared.domain.report import Freshness, Placement, Report, Zone, ZonedAmount, ZoneResource
from shared.domain.resources import Amounts
from shared.events.cluster_events import PodRunning
from shared.kubelet.admission import admit, build, drop_stale, start_containers
from shared.kubelet.config import KubeletConfig
from shared.kubelet.device_state import Device
from shared.kubelet.fingerprint import fingerprint
from shared.kubelet.machine import KubeletState
from tests.kubelet.machines import GIB, regular_machine
from tests.scheduler.cycle_worlds import World
from tests.scheduler.objects import compare, through_object

Json = dict[str, Any]

METHOD = "with-exclusive-resources"
# A node that names no amount of a resource has plenty of it.
PLENTY = {"cpu": 1 << 40, "memory": 1 << 60}


def world_of(case: Json, **settings: Any) -> World:
    """Return the cluster of a case, its reports compared with the running pods."""
    if "strategy" in case:
        settings["strategy"] = case["strategy"]
    world = World(CycleConfig(**settings))
    running = [(pod_of(doc), doc) for doc in case.get("running", [])]
    for name, node in case["nodes"].items():
        on_node = [(pod, doc) for pod, doc in running if doc["node"] == name]
        report = _report(name, node, on_node)
        world.observe(name, allocatable=_allocatable(node, report))
        for pod, _ in on_node:
            world.bound(pod, name)
        if report is not None:
            source = node.get("report", "bus" if "machine" in node else "nrt")
            world.report(through_object(report) if source == "nrt" else report)
            compare(world, name)
        for pod, _ in on_node:
            world.fold(f"pod/{pod.uid}", PodRunning(pod.uid, name))
    return world


def pod_of(doc: Json) -> Pod:
    """Return a pod of a case. Its uid is its name, and its containers are named by number."""
    containers = [_container(f"c{at}", each) for at, each in enumerate(doc["containers"])]
    kinds = [each["kind"] for each in doc["containers"]]
    inits = [
        {**container, "restartPolicy": "Always"} if kind == "sidecar" else container
        for kind, container in zip(kinds, containers, strict=True)
        if kind != "app"
    ]
    apps = [container for kind, container in zip(kinds, containers, strict=True) if kind == "app"]
    name = doc["name"]
    metadata = {"name": name, "namespace": "ns", "uid": name}
    manifest: Json = {
        "metadata": metadata | {key: doc[key] for key in ("labels", "annotations") if key in doc},
        "spec": {
            "containers": apps,
            "initContainers": inits,
            "priority": doc.get("priority", 0),
        },
    }
    if "qos" in doc:
        manifest["status"] = {"qosClass": doc["qos"]}
    pod, problem = read_pod(manifest)
    if problem:
        raise ValueError(problem)
    return pod


def _container(name: str, doc: Json) -> Json:
    limits = doc.get("lim", doc["req"])
    return {"name": name, "resources": {"requests": doc["req"], "limits": limits}}


def amounts_of(quantities: Mapping[str, str]) -> Amounts:
    """Return Kubernetes quantities as exact amounts."""
    return {name: quantity.amount(name, text) for name, text in quantities.items()}


def _allocatable(node: Json, report: Report | None) -> Amounts:
    sums: Amounts = {}
    for zone in report.zones if report is not None else ():
        for name, resource in zone.resources.items():
            sums[name] = sums.get(name, 0) + resource.allocatable
    offered = {name: amount for name, amount in sums.items() if amount}
    return {**PLENTY, "pods": 110, **offered, **amounts_of(node.get("allocatable", {}))}


Running = Sequence[tuple[Pod, Json]]


def _report(name: str, node: Json, running: Running) -> Report | None:
    """Return what the node's exporter knows, None for a node without one."""
    if "machine" in node:
        state = kubelet_of(node)
        for pod, _ in running:
            admitted = admit(state, pod)
            if not admitted.admitted:
                raise ValueError(f"the kubelet of {name} rejects {pod.name}: {admitted.message}")
            state = start_containers(admitted.state, pod)
        state = drop_stale(state)
        pods = [active.pod for active in state.pods.values()]
        scan = reading.scan(state, pods, Freshness("boot", 1), True)
        return exporter.report(name, "test", scan, exporter.Rules())
    if "zones" not in node:
        return None
    zones = tuple(_zone(zone) for zone in node["zones"])
    tracked = {
        resource
        for zone in zones
        for resource, amounts in zone.resources.items()
        if amounts.allocatable and resource not in node.get("untracked", ())
    }
    placements = tuple(p for pod, doc in running for p in _placements(pod, doc))
    report = Report(
        node=name,
        boot_id="boot",
        boot_time_ms=1,
        policy=node["policy"],
        scope=node.get("scope", "container"),
        max_numa_nodes=node.get("max_numa_nodes", 8),
        tracked=tuple(sorted(tracked)),
        zones=zones,
        placements=placements,
    )
    exclusive = sorted({(p.namespace, p.pod) for p in placements if p.held})
    return msgspec.structs.replace(
        report, fingerprint=fingerprint(exclusive), fingerprint_method=METHOD
    )


def kubelet_of(node: Json) -> KubeletState:
    """Return the kubelet of a node with a machine, before its first pod."""
    machine = node["machine"]
    zones = machine["zones"]
    config = KubeletConfig(
        topology_policy=node["policy"],
        topology_scope=node.get("scope", "container"),
        cpu_policy="static",
        cpu_options=machine.get("cpu_options", {}),
        reserved_cpus=machine["reserved"],
        memory_policy="Static",
        reserved_memory={zone: {"memory": GIB} for zone in range(zones)},
    )
    devices = {
        resource: {f"d{at}": Device(1 << zone) for at, zone in enumerate(listed)}
        for resource, listed in machine.get("devices", {}).items()
    }
    shape = regular_machine(zones, machine["cores"], memory_bytes=machine["memory_gib"] * GIB)
    built = build(shape, config, devices)
    if not isinstance(built, KubeletState):
        raise ValueError(built.message)
    return built


def _zone(doc: Json) -> Zone:
    size = amounts_of(doc["size"])
    free = {**size, **amounts_of(doc.get("free", {}))}
    costs = {int(zone): cost for zone, cost in doc.get("costs", {}).items()}
    resources = {name: ZoneResource(size[name], size[name], free[name]) for name in sorted(size)}
    return Zone(doc["id"], resources, costs)


def _placements(pod: Pod, doc: Json) -> list[Placement]:
    """Return what the pod's containers hold, one entry of `held` each; none if it is unproven."""
    listed = []
    for container, holding in zip(pod.containers, doc.get("held", []), strict=False):
        zoned = [
            ZonedAmount(name, tuple(int(zone) for zone in zones.split(",")), amount)
            for zones, quantities in holding.items()
            for name, amount in amounts_of(quantities).items()
        ]
        listed.append(Placement(pod.namespace, pod.name, container.name, tuple(zoned)))
    return listed
