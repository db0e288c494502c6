"""The tasks that fit no node of the empty cluster, by plain arithmetic.

Each container needs a set of zones that the node's policy allows: one zone under single-numa-node,
the narrowest sets that suffice under restricted, any set otherwise. Containers take zones one after
another, and every choice is tried. The whole pod must fit the node. This module does not know the
kubelet model, the scheduler, or running pods.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations

import msgspec

from services.simulator.cluster import GPU, SimulatedNode, zone_hugepages
from services.simulator.workload import Task, TaskContainer
from shared.domain.policies import NONE, RESTRICTED, SINGLE_NUMA_NODE
from shared.domain.resources import CPU, MEMORY, PODS, Amounts, is_device, is_hugepages

# Free amounts of each zone.
Free = tuple[Amounts, ...]


class Room(msgspec.Struct, frozen=True):
    """The amounts of one empty node: in total by zone (reserved CPUs included), free by zone, and
    allocatable. If it `is_owned`, Topolog chooses zones for the whole pod: for CPUs, memory, and
    the devices that are listed by zone.
    """

    total: Free
    free: Free
    node: Amounts
    policy: str
    scope: str
    is_owned: bool = False


class Infeasible(msgspec.Struct, frozen=True):
    """A task that no node can ever take, with its requests in Topolog's units."""

    task: str
    demand: Amounts


def rooms(nodes: Iterable[SimulatedNode], has_device_objects: bool = False) -> tuple[Room, ...]:
    """Return the distinct rooms of a cluster: equal nodes count once. With `has_device_objects`
    Topolog chooses the GPUs of nodes whose zones it chooses.
    """
    listed_rooms: list[Room] = []
    for node in nodes:
        room = _room(node, has_device_objects)
        if room not in listed_rooms:
            listed_rooms.append(room)
    return tuple(listed_rooms)


def infeasible(tasks: Iterable[Task], cluster: tuple[Room, ...]) -> list[Infeasible]:
    """Return the tasks that fit no room. Equal containers are judged once."""
    verdicts: dict[bytes, bool] = {}
    infeasible_tasks = []
    for task in tasks:
        shape = msgspec.json.encode(task.containers, order="sorted")
        if shape not in verdicts:
            verdicts[shape] = any(task_fits(task, room) for room in cluster)
        if not verdicts[shape]:
            infeasible_tasks.append(Infeasible(task.name, _pod_demand(task.containers)))
    return infeasible_tasks


def task_fits(task: Task, room: Room) -> bool:
    """Return whether the empty node has room for the task under its policy."""
    demand = _pod_demand(task.containers)
    if any(amount > room.node.get(name, 0) for name, amount in {**demand, PODS: 1}.items()):
        return False
    if room.policy == NONE:
        return True
    if room.is_owned:
        zoned = {
            name: amount
            for name, amount in demand.items()
            if not is_device(name) or any(name in zone for zone in room.free)
        }
        return any(_sets(zoned, room.free, room))
    if room.scope == "pod":
        return any(_sets(_aligned_total(task), room.free, room))
    return _containers_fit(task, room)


def _room(node: SimulatedNode, has_device_objects: bool) -> Room:
    reserved = {int(cpu) for cpu in node.kubelet.reserved_cpus.split(",")}
    total, free = [], []
    for zone in node.machine.zones:
        cpus = [cpu.id for cpu in node.machine.cpus if cpu.numa == zone.id]
        devices = {
            name: sum(1 for device in listed.values() if device.mask and device.mask >> zone.id & 1)
            for name, listed in node.devices.items()
            if not node.owned_policy or (has_device_objects and name == GPU)
        }
        system = node.kubelet.reserved_memory.get(zone.id, {}).get(MEMORY, node.system_memory)
        pages = zone_hugepages(zone)
        shared = {MEMORY: zone.memory_bytes - system - sum(pages.values()), **pages, **devices}
        total.append({CPU: len(cpus) * 1000, **shared})
        free.append({CPU: len(set(cpus) - reserved) * 1000, **shared})
    policy, scope = node.kubelet.topology_policy, node.kubelet.topology_scope
    policy, is_owned = node.owned_policy or policy, bool(node.owned_policy)
    return Room(tuple(total), tuple(free), node.allocatable(), policy, scope, is_owned)


def _pod_demand(containers: Iterable[TaskContainer]) -> Amounts:
    """Return, by resource, the larger of the app containers' sum and any init container."""
    containers, demand = tuple(containers), dict[str, int]()
    for container in containers:
        if not container.init:
            for name, amount in container.requests.items():
                demand[name] = demand.get(name, 0) + amount
    for container in containers:
        if container.init:
            demand = {
                **container.requests,
                **{n: max(a, container.requests.get(n, 0)) for n, a in demand.items()},
            }
    return dict(sorted(demand.items()))


def _aligned(container: TaskContainer, guaranteed: bool) -> Amounts:
    """Return the requests that the managers pin: whole CPUs and memory of Guaranteed pods, devices
    of all.
    """
    return {
        name: amount
        for name, amount in container.requests.items()
        if amount and (is_device(name) or (guaranteed and _pinned(name, amount)))
    }


def _pinned(name: str, amount: int) -> bool:
    return amount % 1000 == 0 if name == CPU else name == MEMORY or is_hugepages(name)


def _guaranteed(task: Task) -> bool:
    return not any(container.burst for container in task.containers)


def _aligned_total(task: Task) -> Amounts:
    """Return the sum of what the managers pin. Half CPUs of two containers are not pinned, because
    each container is judged by itself.
    """
    guaranteed = _guaranteed(task)
    return _pod_demand(
        msgspec.structs.replace(container, requests=_aligned(container, guaranteed))
        for container in task.containers
    )


def _containers_fit(task: Task, room: Room) -> bool:
    """Return whether the containers fit in some way. The zones of an init container are free again
    for the containers after it.
    """
    guaranteed = _guaranteed(task)
    first = [_aligned(container, guaranteed) for container in task.containers if container.init]
    if not all(any(_sets(demand, room.free, room)) for demand in first):
        return False
    return _place([_aligned(c, guaranteed) for c in task.containers if not c.init], room.free, room)


def _place(demands: list[Amounts], free: Free, room: Room) -> bool:
    if not demands:
        return True
    return any(
        _place(demands[1:], _taken(free, zones, demands[0]), room)
        for zones in _sets(demands[0], free, room)
    )


def _sets(demand: Amounts, free: Free, room: Room) -> Iterator[tuple[int, ...]]:
    """Yield the sets of zones that the policy allows and that hold the demand."""
    zones = range(len(free))
    sizes = [1] if room.policy == SINGLE_NUMA_NODE else list(range(1, len(free) + 1))
    if room.policy == RESTRICTED and not room.is_owned:
        narrowest = {_narrowest(name, amount, room.total) for name, amount in demand.items()}
        sizes = [size for size in sizes if not narrowest or narrowest == {size}]
    for size in sizes:
        for chosen in combinations(zones, size):
            if all(
                sum(free[zone].get(name, 0) for zone in chosen) >= amount
                for name, amount in demand.items()
            ):
                yield chosen


def _narrowest(name: str, amount: int, total: Free) -> int:
    """Return how many zones an empty machine needs for the amount; 0 if all of them do not
    suffice.
    """
    richest = sorted((zone.get(name, 0) for zone in total), reverse=True)
    return next((size for size in range(1, len(richest) + 1) if sum(richest[:size]) >= amount), 0)


def _taken(free: Free, zones: tuple[int, ...], demand: Amounts) -> Free:
    remaining = [dict(zone) for zone in free]
    for name, amount in demand.items():
        for zone in zones:
            share = min(amount, remaining[zone].get(name, 0))
            remaining[zone][name] = remaining[zone].get(name, 0) - share
            amount -= share
    return tuple(remaining)
