"""Exact kubelets beside the cluster's knowledge of them: one report, pods that no report proves, and every state that is
consistent with both, as far as it can be sampled.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import msgspec

from services.exporter import core as exporter
from services.scheduler.deciding.config import CycleConfig
from services.simulator import reading
from shared.domain.pod import Container, ContainerKind, Pod, Qos
from shared.domain.report import Freshness, Report
from shared.domain.resources import Amounts
from shared.kubelet.admission import admit, remove, settle
from shared.kubelet.device_state import Device
from shared.kubelet.machine import KubeletState
from shared.ledger.state import ZoneAmounts
from tests.kubelet.machines import GIB, GPU, kubelet
from tests.scheduler.cycle_worlds import World

NODE = "n"
STRAY = 0.1
"""Share of unproven pods that came although the kubelet has no room for them."""


class Scene(msgspec.Struct, frozen=True):
    """A kubelet as its report shows it (`base`), pods that came after the report, and the pod to be decided; `stored`: the
    exporter reads the kubelet's checkpoints."""

    base: KubeletState
    unsettled: tuple[Pod, ...]
    pod: Pod
    stored: bool = False


def scene(seed: int, policy: str, scope: str, zones: int | None = None) -> Scene:
    """A random scene: 1 to 3 zones, a few pods settled before the report, up to three after it."""
    rng = random.Random(seed)
    count = zones or rng.randint(1, 3)
    gpus = {f"g{z}-{i}": 1 << z for z in range(count) for i in range(rng.randint(0, 2))}
    state = kubelet(count, policy, scope, cores_per_zone=rng.choice((2, 4)), gpus=gpus or {"g": 1})
    for at in range(rng.randint(0, 3)):
        state = admit(state, random_pod(rng, f"settled{at}")).state
    base, unsettled = settle(state), []
    for at in range(rng.randint(0, 3)):
        verdict = admit(state, pod := random_pod(rng, f"unsettled{at}"))
        if verdict.admitted or rng.random() < STRAY:
            state = verdict.state
            unsettled.append(pod)
    return Scene(base, tuple(unsettled), random_pod(rng, "decided"), rng.random() < 0.5)


def random_pod(rng: random.Random, name: str) -> Pod:
    """One to three containers, now and then an init container or a sidecar first; mostly Guaranteed."""
    kinds: list[ContainerKind] = [rng.choice(("init", "sidecar")) for _ in range(rng.choice((0, 0, 0, 1, 1, 2)))]
    kinds += ["app"] * rng.choice((1, 1, 2))
    sizes = rng.choice(((1, 2, 3), (1, 2), (2, 4, 6)))
    containers = tuple(_container(rng, f"c{at}", kind, sizes) for at, kind in enumerate(kinds))
    qos: Qos = "Guaranteed" if rng.random() < 0.9 else "Burstable"
    return Pod(name, "ns", name, qos, containers)


def _container(rng: random.Random, name: str, kind: ContainerKind, sizes: Sequence[int]) -> Container:
    asked = {"cpu": rng.choice(sizes) * 1000, "memory": rng.choice((1, 8, 20, 30, 50)) * GIB}
    if rng.random() < 0.15:
        asked["cpu"] = 500
    if rng.random() < 0.3:
        asked[GPU] = rng.choice((1, 1, 2))
    return Container(name, kind, asked, asked)


def report_of(state: KubeletState, stored: bool = False) -> Report:
    """What a production exporter reports of this kubelet, with its checkpoints where they are `stored`."""
    state = settle(state)
    pods = (active.pod for active in state.pods.values())
    return exporter.report(NODE, "test", reading.scan(state, pods, Freshness("boot", 1), stored), exporter.Rules())


def free_of(state: KubeletState) -> ZoneAmounts:
    """What is free in truth, zone by zone: init containers' holdings, which podresources hides, are none of it."""
    state = settle(state)
    free: ZoneAmounts = {}
    for zone, mask in state.kubelet.cpu.topology.numa_mask.items():
        free[zone] = {"cpu": (state.cpu.available(state.kubelet.cpu) & mask).bit_count() * 1000}
        free[zone] |= {name: table.free for name, table in state.memory.nodes[zone].tables.items()}
        for name, pool in state.devices.registered.items():
            left = state.devices.available(name)
            free[zone][name] = sum(1 for each, device in pool.items() if (device.mask or 0) >> zone & 1 and each in left)
    return free


def world_of(seen: Scene, config: CycleConfig) -> World:
    """A ledger that knows the pods which the report lists, has the report, and hears of the unproven pods after it."""
    world = World(config)
    world.observe(NODE, allocatable={"cpu": 10**6, "memory": 1 << 50, GPU: 100, "pods": 1000})
    for active in seen.base.pods.values():
        world.bound(active.pod, NODE)
    world.report(report_of(seen.base, seen.stored))
    for pod in seen.unsettled:
        world.bound(pod, NODE)
    return world


def consistent_states(seen: Scene, seed: int, samples: int) -> Iterator[KubeletState]:
    """States that the unproven pods may have led to: any of them admitted, in any order, among pods that came and went."""
    rng = random.Random(seed)
    for _ in range(samples):
        state = seen.base
        coming = [pod for pod in seen.unsettled if rng.random() < 0.8]
        ghosts = [random_pod(rng, f"ghost{at}") for at in range(rng.choice((0, 1, 2, 3)))]
        arrivals = coming + ghosts
        rng.shuffle(arrivals)
        for pod in arrivals:
            state = admit(state, pod).state
        for ghost in ghosts:
            if ghost.uid in state.pods:
                state = remove(state, ghost.uid)
        yield settle(state)


def total(amounts: Sequence[Amounts]) -> Amounts:
    """The sum."""
    names = sorted({name for each in amounts for name in each})
    return {name: sum(each.get(name, 0) for each in amounts) for name in names}


__all__ = ["Device", "Scene", "consistent_states", "free_of", "random_pod", "report_of", "scene", "total", "world_of"]
