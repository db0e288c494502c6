"""Kubelets that the scheduler cannot distinguish from a recorded one: no report lists unhealthy
devices that no container holds, nor how far a pod has started that was not yet seen running.

A verdict on which they all agree follows from the scheduler's information; if they differ, the pod
is undecided (bounded).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import combinations_with_replacement, product

import msgspec

from shared.domain.pod import Pod
from shared.kubelet.admission import admit, start_container
from shared.kubelet.device_manager import Preferred
from shared.kubelet.device_state import Device, DevicePool
from shared.kubelet.machine import KubeletState

# Kubelets that are compared; where there are more the verdict counts as uncertain.
MOST = 512

# Places, "none" among them, where two piles of devices are tried together.
FEW = 3


def agree(kubelets: Iterator[KubeletState], pod: Pod, prefer: Preferred | None) -> bool:
    """Return whether all kubelets give the same answer."""
    first: bool | None = None
    for index, state in enumerate(kubelets):
        admitted = admit(state, pod, prefer=prefer).admitted
        if index == MOST or admitted is not (first := admitted if first is None else first):
            return False
    return True


def hides_devices(state: KubeletState, pod: Pod) -> list[str]:
    """Return the requested resources of which the kubelet counts devices that no report lists."""
    asked = {name for each in pod.containers for name in each.requests}
    return [name for name in state.devices.registered if name in asked and _unlisted(state, name)]


def _unlisted(state: KubeletState, resource: str) -> set[str]:
    in_use = state.devices.in_use.get(resource, frozenset())
    return {
        each
        for each, device in state.devices.pool(resource).items()
        if not device.healthy and each not in in_use
    }


def with_devices_elsewhere(state: KubeletState, pod: Pod) -> Iterator[KubeletState]:
    """The unlisted devices of one resource lie elsewhere, or there are fewer or more of them: up to
    as many as the pod asks for, in one place, on machines of few zones in two."""
    places = [*[1 << zone for zone in sorted(state.kubelet.cpu.topology.numa_mask)], None]
    for resource in hides_devices(state, pod):
        asked = max(each.requests.get(resource, 0) for each in pod.containers)
        piles = [(mask, count) for mask in places for count in sorted({1, asked})]
        listed = {
            name: each
            for name, each in state.devices.pool(resource).items()
            if name not in _unlisted(state, resource)
        }
        for number in range(3 if len(places) <= FEW else 2):
            for chosen in combinations_with_replacement(piles, number):
                yield _with_pool(state, resource, {**listed, **_ill(chosen)})


def _ill(piles: Collection[tuple[int | None, int]]) -> dict[str, Device]:
    return {
        f"ill-{at}-{each}": Device(mask, False)
        for at, (mask, count) in enumerate(piles)
        for each in range(count)
    }


def _with_pool(state: KubeletState, resource: str, devices: dict[str, Device]) -> KubeletState:
    registered = {**state.devices.registered, resource: DevicePool(devices)}
    return msgspec.structs.replace(
        state, devices=msgspec.structs.replace(state.devices, registered=registered)
    )


def starting(state: KubeletState, waiting: Collection[str]) -> list[Pod]:
    """Return pods not yet seen running, whose init containers may still hold memory."""
    pods = [active.pod for uid, active in state.pods.items() if uid in waiting]
    return [pod for pod in pods if any(each.kind == "init" for each in pod.containers)]


def with_pods_started(state: KubeletState, pods: Collection[Pod]) -> Iterator[KubeletState]:
    """Each of the pods has started some of its containers: none, the first, the first two, and so
    on.
    """
    for counts in product(*[range(len(pod.containers) + 1) for pod in pods]):
        moment = state
        for pod, count in zip(pods, counts, strict=True):
            for container in pod.containers[:count]:
                moment = start_container(moment, pod, container.name)
        yield moment
