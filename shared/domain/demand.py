"""The exclusive zone resources that each container of a pod needs: only what the managers of this
node pin.

Sources: kubelet 1.36, CPU Manager static (Guaranteed and a whole number of CPUs), Memory Manager
Static (Guaranteed), Device Manager (limits, any QoS class). This module does not know zones,
reports or nodes.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from shared.domain.pod import Container, ContainerKind, Pod
from shared.domain.pod_level import as_managed
from shared.domain.policies import SINGLE_NUMA_NODE
from shared.domain.resources import CPU, MEMORY, Amounts, is_device, is_hugepages, is_memory


class ContainerDemand(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The exclusive amounts of one container, names sorted.

    `zeros` are resources that the container names with an amount of 0. `amounts` or `zeros` has an
    entry, and some container of the pod has amounts.
    """

    name: str
    kind: ContainerKind
    amounts: Amounts
    zeros: tuple[str, ...] = ()


def zonal_demand(
    pod: Pod, tracked: Collection[str], pod_level_scope: str = ""
) -> tuple[ContainerDemand, ...]:
    """Return the containers that need something exclusive of the `tracked` resources, in the
    kubelet's order.

    With default gates (kubelet 1.36) pods with pod-level resources get exclusive devices, but no
    exclusive CPUs or memory. `pod_level_scope` is the scope of managers that serve them otherwise.
    """
    demands = []
    if pod_level_scope:
        pod = as_managed(pod, pod_level_scope)
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
            demands.append(ContainerDemand(container.name, container.kind, amounts, zeros))
    return tuple(demands) if any(part.amounts for part in demands) else ()


def _is_zero(pod: Pod, container: Container, name: str) -> bool:
    """Return whether the container requests 0 of the resource. Its manager handles such a request,
    too.
    """
    if is_device(name):
        return name in container.limits
    return is_memory(name) and pod.qos == "Guaranteed" and pod.pod_level is None


def draws_by_zeros(containers: Collection[ContainerDemand]) -> bool:
    """Return whether a container requests 0 of a device. The kubelet's hint is then the zones that
    have such devices, as if it requested some (kubelet 1.36).
    """
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
    """Return the most that the containers hold together when the holdings of init containers are
    reused.

    For each resource this is the larger of two amounts: all apps and sidecars together, or an init
    container with the sidecars before it (the kubelet's pod-scope request).
    """
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
    """Return whether a container that is not an app requests memory that no app requests.

    Under scope pod the kubelet's hint leaves this memory out (kubelet 1.36). The chosen zone may
    then lack it, and the kubelet rejects the pod.
    """
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
    """Return whether several containers request only memory under single-numa-node and scope pod.

    If the Memory Manager finds no zones for the sum, it has no preference. No other manager has one
    either, so each container gets zones of its own (kubelet 1.36).
    """
    if policy != SINGLE_NUMA_NODE or scope != "pod" or len(containers) < 2:
        return False
    return all(is_memory(name) for demand in containers for name in demand.amounts)


def kept_init_cpu(containers: Collection[ContainerDemand], apart: bool = False) -> int:
    """Return the millicpu that ordinary init containers may keep in addition to the CPUs of later
    containers.

    The kubelet does not return an init container's exclusive CPUs before the pod ends, and later
    containers pick from free and reusable CPUs alike. Only an equal count picks the very same CPUs
    (same free set, same mask). With `apart`, masks may differ from container to container, so that
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
    """Return the most that the containers can hold at any time in one zone: `peak`, and for CPUs
    the share that init containers keep.

    For CPUs and devices this is also the most in all zones together. `apart` is as in
    `kept_init_cpu`.
    """
    amounts = dict(peak(containers))
    running_cpu = sum(d.amounts.get(CPU, 0) for d in containers if d.kind != "init")
    if CPU in amounts:
        amounts[CPU] = max(amounts[CPU], running_cpu + kept_init_cpu(containers, apart))
    return {name: amounts[name] for name in sorted(amounts)}
