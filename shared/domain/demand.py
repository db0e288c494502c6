"""What a pod demands of NUMA zones: per container, only what this node's managers pin.

Sources: kubelet 1.36, CPU Manager static (Guaranteed and a whole number of CPUs), Memory Manager
Static (Guaranteed), Device Manager (limits, any class of service). This module must not know zones,
reports or nodes.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from shared.domain.pod import Container, ContainerKind, Pod
from shared.domain.policies import SINGLE_NUMA_NODE
from shared.domain.resources import CPU, MEMORY, Amounts, is_device, is_hugepages, is_memory


class ContainerDemand(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One container's exclusive amounts, names sorted. `zeros` are resources that it names and asks
    nothing of; one of both is never empty, and of some container of the pod the amounts."""

    name: str
    kind: ContainerKind
    amounts: Amounts
    zeros: tuple[str, ...] = ()


def zonal_demand(pod: Pod, tracked: Collection[str]) -> tuple[ContainerDemand, ...]:
    """The containers that take something exclusive of the `tracked` resources, in the kubelet's
    order.

    Pods with pod-level resources take no exclusive CPUs or memory (kubelet 1.36 default gates);
    their devices count.
    """
    found = []
    for container in pod.containers:
        named = [
            name for name in sorted({*container.requests, *container.limits}) if name in tracked
        ]
        amounts = {
            name: amount for name in named if (amount := _exclusive(pod, container, name)) > 0
        }
        zeros = tuple(
            [name for name in named if name not in amounts and _is_zero(pod, container, name)]
        )
        if amounts or zeros:
            found.append(ContainerDemand(container.name, container.kind, amounts, zeros))
    return tuple(found) if any(part.amounts for part in found) else ()


def _is_zero(pod: Pod, container: Container, name: str) -> bool:
    """Is the resource asked for in an amount of 0, which its manager knows of all the same?"""
    if is_device(name):
        return name in container.limits
    return is_memory(name) and pod.qos == "Guaranteed" and pod.pod_level is None


def draws_by_zeros(containers: Collection[ContainerDemand]) -> bool:
    """Does a container name devices of which it asks for none? The kubelet's hint is then the zones
    that have such devices, as if it asked for some (kubelet 1.36)."""
    return any(is_device(name) for demand in containers for name in demand.zeros)


def _exclusive(pod: Pod, container: Container, name: str) -> int:
    if is_device(name):
        return container.limits.get(name, container.requests.get(name, 0))
    if pod.qos != "Guaranteed" or pod.pod_level is not None:
        return 0
    amount = container.requests.get(name, 0)
    if name == CPU:
        return amount if amount % 1000 == 0 else 0
    return amount if name == MEMORY or is_hugepages(name) else 0


def peak(containers: Collection[ContainerDemand]) -> Amounts:
    """What the containers hold together at most when init containers' holdings are reused: by
    resource the larger of all apps and sidecars, and any init container with the sidecars before it
    (the kubelet's pod-scope request)."""
    running: Amounts = {}
    highest: Amounts = {}
    for demand in containers:
        if demand.kind == "init":
            for name, amount in demand.amounts.items():
                highest[name] = max(highest.get(name, 0), running.get(name, 0) + amount)
            continue
        for name, amount in demand.amounts.items():
            running[name] = running.get(name, 0) + amount
            highest[name] = max(highest.get(name, 0), running[name])
    return highest


def outside_pod_hint(containers: Collection[ContainerDemand]) -> bool:
    """Does a container that is no app ask for memory that no app asks for? Under scope pod the
    kubelet's hint leaves that out (kubelet 1.36), so that the zone that it chooses may lack it, and
    then refuses the pod."""
    hinted = {
        name
        for demand in containers
        if demand.kind == "app"
        for name in (*demand.amounts, *demand.zeros)
    }
    return any(
        is_memory(name) and name not in hinted for demand in containers for name in demand.amounts
    )


def may_be_split(containers: Collection[ContainerDemand], policy: str, scope: str) -> bool:
    """Do several containers ask for memory and nothing else, under single-numa-node and scope pod?
    Where no zones that the Memory Manager may use have as much as all of them ask for together it
    has no preference, as no other manager has, and each container takes zones of its own (kubelet
    1.36)."""
    if policy != SINGLE_NUMA_NODE or scope != "pod" or len(containers) < 2:
        return False
    return all(is_memory(name) for demand in containers for name in demand.amounts)


def kept_init_cpu(containers: Collection[ContainerDemand], apart: bool = False) -> int:
    """Millicpu that ordinary init containers may keep beside the CPUs of the containers after them.

    The kubelet never gives an init container's exclusive CPUs back before the pod ends, and the
    later containers pick from free and reusable CPUs alike. Only an equal count picks the very same
    CPUs (same free set, same mask). `apart`: masks may differ from container to container, so that
    even an equal count may be picked elsewhere.
    """
    if apart:
        return sum(demand.amounts.get(CPU, 0) for demand in containers if demand.kind == "init")
    kept = 0
    ordered = list(containers)
    for index, demand in enumerate(ordered):
        if demand.kind != "init":
            continue
        cpu = demand.amounts.get(CPU, 0)
        following = next((d.amounts[CPU] for d in ordered[index + 1 :] if CPU in d.amounts), 0)
        kept += 0 if cpu == following else cpu
    return kept


def most(containers: Collection[ContainerDemand], apart: bool = False) -> Amounts:
    """The most that the containers can hold at any time in one zone: `peak`, and for CPUs what init
    containers keep. CPUs and devices: also the most in all zones together. `apart` as in
    `kept_init_cpu`."""
    amounts = dict(peak(containers))
    running_cpu = sum(d.amounts.get(CPU, 0) for d in containers if d.kind != "init")
    if CPU in amounts:
        amounts[CPU] = max(amounts[CPU], running_cpu + kept_init_cpu(containers, apart))
    return {name: amounts[name] for name in sorted(amounts)}
