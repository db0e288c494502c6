"""From podresources messages to values: sorts what the kubelet leaves in map order, keeps
everything else as said.

Must not know sockets or files (both sources use it), nor what an answer means for a zone.
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
    """One kubelet's answers to List, each of which is mostly the one before: what has the same
    bytes is the same value, and is not read again. `pods` is the plain way."""

    def __init__(self) -> None:
        self._data = b""
        self._listed: tuple[ListedPod, ...] = ()
        self._known: dict[bytes, ListedPod] = {}

    def read(self, data: bytes) -> tuple[ListedPod, ...]:
        """The listed pods, sorted by namespace and name."""
        if data != self._data:
            unread = pb.UnreadPodResources.FromString(data).pod_resources
            known = {
                each: self._known.get(each) or _pod(pb.PodResources.FromString(each))
                for each in unread
            }
            self._listed = tuple(sorted([known[each] for each in unread], key=_key))
            self._data, self._known = data, known
        return self._listed


def pods(response: pb.ListPodResourcesResponse) -> tuple[ListedPod, ...]:
    """The listed pods, sorted by namespace and name."""
    return tuple(sorted((_pod(pod) for pod in response.pod_resources), key=_key))


def allocatable(response: pb.AllocatableResourcesResponse) -> Allocatable:
    """The node's allocatable CPUs, memory blocks and devices."""
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


def _claims(found: Sequence[pb.DynamicResource]) -> tuple[ClaimedDevice, ...]:
    """Every device of every claim, sorted; a claim without any is one entry."""
    if not found:
        return ()
    claims = [each for one in found for each in _claim(one)]
    return tuple(
        sorted(claims, key=lambda one: (one.claim, one.driver, one.pool, one.device, one.share))
    )


def _claim(found: pb.DynamicResource) -> list[ClaimedDevice]:
    made, name = [], f"{found.claim_namespace}/{found.claim_name}"
    driver, told = "", list[str]()
    for each in found.claim_resources:
        names = [one.name for one in each.cdi_devices]
        # Kubelet 1.36 lists with a driver's device those of its devices before it too.
        repeated = (
            each.driver_name == driver and len(names) > len(told) and names[: len(told)] == told
        )
        own = names[len(told) :] if repeated else names
        driver, told = each.driver_name, names
        made.append(
            ClaimedDevice(name, driver, each.pool_name, each.device_name, each.share_id, tuple(own))
        )
    return made or [ClaimedDevice(name)]


def _cpus(ids: Iterable[int]) -> tuple[int, ...]:
    """Raises ValueError for an id that no Linux machine has: sets of CPUs are kept as one integer
    each.
    """
    found = tuple(sorted(ids))
    if found and not 0 <= found[0] <= found[-1] <= MAX_CPU_ID:
        raise ValueError(
            f"podresources: CPU ids from {found[0]} to {found[-1]}, expected 0 to {MAX_CPU_ID}; see the kubelet's log"
        )
    return found


def _blocks(blocks: Iterable[pb.ContainerMemory]) -> tuple[MemoryBlock, ...]:
    found = [MemoryBlock(block.memory_type, _zones(block), _size(block)) for block in blocks]
    if len(found) > 1:
        found.sort(key=lambda block: (block.resource, block.zones, block.size))
    return tuple(found)


def _size(block: pb.ContainerMemory) -> int:
    """Raises ValueError for more than any machine has: a report counts in 64 bits."""
    if block.size > MAX_BYTES:
        raise ValueError(
            f"podresources: {block.size} bytes of {block.memory_type[:40]!r} memory; see the kubelet's log"
        )
    return int(block.size)


def _devices(groups: Iterable[pb.ContainerDevices]) -> tuple[DeviceGroup, ...]:
    found = [
        DeviceGroup(group.resource_name, tuple(sorted(group.device_ids)), _zones(group))
        for group in groups
    ]
    if len(found) > 1:
        found.sort(key=lambda group: (group.resource, group.ids, group.zones))
    return tuple(found)


def _zones(entry: pb.ContainerMemory | pb.ContainerDevices) -> tuple[int, ...]:
    nodes = entry.topology.nodes
    if len(nodes) == 1:
        return (nodes[0].ID,) if nodes[0].ID >= 0 else ()
    return tuple(sorted({node.ID for node in nodes if node.ID >= 0}))
