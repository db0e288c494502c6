"""podresources messages as values; sorts what the kubelet leaves in map order.

Must not know sockets or files (both sources use it), nor the zones that an answer means.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from services.exporter.answers import (
    Allocatable,
    DeviceGroup,
    ListedContainer,
    ListedPod,
    MemoryBlock,
)
from services.exporter.podresources import podresources_pb2 as pb
from shared.domain.report import ClaimedDevice
from shared.kubelet.cpuset import MAX_CPU_ID

MAX_BYTES = 2**50


class Lists:
    """One kubelet's answers to List. Most of an answer equals the previous one.

    A pod with the same bytes keeps its value and is not decoded again. `pods` is the simple way.
    """

    def __init__(self) -> None:
        self._data = b""
        self._listed: tuple[ListedPod, ...] = ()
        self._decoded: dict[bytes, ListedPod] = {}

    def read(self, data: bytes) -> tuple[ListedPod, ...]:
        """Return the listed pods, sorted by namespace and name."""
        if data != self._data:
            messages = pb.UnreadPodResources.FromString(data).pod_resources
            decoded = {
                message: self._decoded.get(message) or _pod(pb.PodResources.FromString(message))
                for message in messages
            }
            self._listed = tuple(sorted([decoded[message] for message in messages], key=_key))
            self._data, self._decoded = data, decoded
        return self._listed


def pods(response: pb.ListPodResourcesResponse) -> tuple[ListedPod, ...]:
    """Return the listed pods, sorted by namespace and name."""
    return tuple(sorted((_pod(pod) for pod in response.pod_resources), key=_key))


def allocatable(response: pb.AllocatableResourcesResponse) -> Allocatable:
    """Return the allocatable CPUs, memory blocks and devices."""
    return Allocatable(
        _cpus(response.cpu_ids), _blocks(response.memory), _devices(response.devices)
    )


def _key(pod: ListedPod) -> tuple[str, str]:
    return pod.namespace, pod.name


def _pod(pod: pb.PodResources) -> ListedPod:
    return ListedPod(
        pod.namespace,
        pod.name,
        tuple(_container(container) for container in pod.containers),
        _cpus(pod.cpu_ids),
        _blocks(pod.memory),
    )


def _container(container: pb.ContainerResources) -> ListedContainer:
    return ListedContainer(
        container.name,
        _cpus(container.cpu_ids),
        _blocks(container.memory),
        _devices(container.devices),
        _claims(container.dynamic_resources),
    )


def _claims(claims: Sequence[pb.DynamicResource]) -> tuple[ClaimedDevice, ...]:
    """Return every device of every claim, sorted; a claim without devices is one entry."""
    if not claims:
        return ()
    devices = [device for claim in claims for device in _claim(claim)]
    return tuple(sorted(devices, key=_claim_key))


def _claim_key(device: ClaimedDevice) -> tuple[str, ...]:
    return device.claim, device.driver, device.pool, device.device, device.share


def _claim(claim: pb.DynamicResource) -> list[ClaimedDevice]:
    devices, name = [], f"{claim.claim_namespace}/{claim.claim_name}"
    driver, earlier = "", list[str]()
    for entry in claim.claim_resources:
        cdi = [device.name for device in entry.cdi_devices]
        # Kubelet 1.36 repeats the names of earlier devices of a driver with each further device.
        is_longer = len(cdi) > len(earlier) and cdi[: len(earlier)] == earlier
        new = cdi[len(earlier) :] if entry.driver_name == driver and is_longer else cdi
        driver, earlier = entry.driver_name, cdi
        devices.append(
            ClaimedDevice(
                name, driver, entry.pool_name, entry.device_name, entry.share_id, tuple(new)
            )
        )
    return devices or [ClaimedDevice(name)]


def _cpus(ids: Iterable[int]) -> tuple[int, ...]:
    """Sort CPU ids. Raises ValueError for an id that no Linux machine has: sets become integers."""
    cpus = tuple(sorted(ids))
    if cpus and not 0 <= cpus[0] <= cpus[-1] <= MAX_CPU_ID:
        raise ValueError(
            f"podresources: CPU ids from {cpus[0]} to {cpus[-1]}, expected 0 to {MAX_CPU_ID}; "
            "see the kubelet's log"
        )
    return cpus


def _blocks(messages: Iterable[pb.ContainerMemory]) -> tuple[MemoryBlock, ...]:
    blocks = [MemoryBlock(entry.memory_type, _zones(entry), _size(entry)) for entry in messages]
    if len(blocks) > 1:
        blocks.sort(key=lambda block: (block.resource, block.zones, block.size))
    return tuple(blocks)


def _size(block: pb.ContainerMemory) -> int:
    """Return the size of a memory block. Raises ValueError if no machine is so large: a report
    counts in 64 bits."""
    if block.size > MAX_BYTES:
        raise ValueError(
            f"podresources: {block.size} bytes of {block.memory_type[:40]!r} memory; "
            "see the kubelet's log"
        )
    return int(block.size)


def _devices(messages: Iterable[pb.ContainerDevices]) -> tuple[DeviceGroup, ...]:
    groups = [
        DeviceGroup(entry.resource_name, tuple(sorted(entry.device_ids)), _zones(entry))
        for entry in messages
    ]
    if len(groups) > 1:
        groups.sort(key=lambda group: (group.resource, group.ids, group.zones))
    return tuple(groups)


def _zones(entry: pb.ContainerMemory | pb.ContainerDevices) -> tuple[int, ...]:
    nodes = entry.topology.nodes
    if len(nodes) == 1:
        return (nodes[0].ID,) if nodes[0].ID >= 0 else ()
    return tuple(sorted({node.ID for node in nodes if node.ID >= 0}))
