"""The podresources messages of a simulated kubelet, made from its state.

They are those of a real kubelet: app containers and (from 1.30) sidecars only, CPU ids in no order,
one device entry for each device and zone, memory blocks with their whole set of zones. This module
does not know admission, sockets or time.
"""

from __future__ import annotations

from services.exporter.podresources import podresources_pb2 as pb
from shared.domain.pod import Pod
from shared.domain.report import POD_LEVEL
from shared.kubelet.admission import placements
from shared.kubelet.cpuset import each_cpu
from shared.kubelet.device_state import Device
from shared.kubelet.machine import KubeletState
from shared.kubelet.masks import nodes_of


def pod_message(pod: Pod, state: KubeletState) -> bytes:
    """Return the pod's entry as a ListPodResourcesResponse. Such messages, joined, are one answer
    to List.
    """
    response = pb.ListPodResourcesResponse()
    _fill(response.pod_resources.add(), pod, state)
    return response.SerializeToString()


def get_message(pod: Pod, state: KubeletState) -> bytes:
    """Return the answer to Get."""
    response = pb.GetPodResourcesResponse()
    _fill(response.pod_resources, pod, state)
    return response.SerializeToString()


def allocatable_message(state: KubeletState) -> bytes:
    """Return the answer to GetAllocatableResources, which does not depend on the pods."""
    response = pb.AllocatableResourcesResponse()
    manager = state.kubelet.cpu
    if manager.policy == "static":
        response.cpu_ids.extend(
            reversed(list(each_cpu(manager.topology.every & ~manager.reserved)))
        )
    if state.memory.config.policy == "Static":
        for zone, node in state.memory.nodes.items():
            for resource, table in node.tables.items():
                if table.allocatable:
                    _block(response.memory.add(), resource, table.allocatable, 1 << zone)
    for resource, devices in state.devices.registered.items():
        for name, device in devices.items():
            if device.healthy:
                _add_device(response.devices, resource, name, device)
    return response.SerializeToString()


def _fill(entry: pb.PodResources, pod: Pod, state: KubeletState) -> None:
    entry.name, entry.namespace = pod.name, pod.namespace
    lists_sidecars = state.kubelet.config.rules.lists_sidecars
    for container, assignment in zip(pod.containers, placements(state, pod), strict=True):
        if container.kind == "init" or (container.kind == "sidecar" and not lists_sidecars):
            continue
        listed = entry.containers.add(name=container.name)
        if assignment.cpus:
            listed.cpu_ids.extend(reversed(assignment.cpu_ids))
        for block in assignment.memory:
            _block(listed.memory.add(), block.resource, block.size, block.mask)
        for resource, names in assignment.devices.items():
            for name in names:
                _add_device(
                    listed.devices, resource, name, state.devices.registered[resource][name]
                )
    _fill_pool(entry, pod, state)


def _fill_pool(entry: pb.PodResources, pod: Pod, state: KubeletState) -> None:
    """Add the pod's pool, as kubelet 1.37 lists it (KEP-5526)."""
    entry.cpu_ids.extend(each_cpu(state.cpu.of(pod.uid, POD_LEVEL)))
    for block in state.memory.entries.get(pod.uid, {}).get(POD_LEVEL, ()):
        _block(entry.memory.add(), block.resource, block.size, block.mask)


def _block(entry: pb.ContainerMemory, resource: str, size: int, mask: int) -> None:
    entry.memory_type, entry.size = resource, size
    for zone in nodes_of(mask):
        entry.topology.nodes.add(ID=zone)


def _add_device(entries: object, resource: str, name: str, device: Device) -> None:
    """Add one entry for each zone of the device. A device without topology has one entry without
    zones.
    """
    for zone in nodes_of(device.mask) if device.mask else (None,):
        entry = entries.add(resource_name=resource, device_ids=[name])  # type: ignore[attr-defined]
        if zone is not None:
            entry.topology.nodes.add(ID=zone)
