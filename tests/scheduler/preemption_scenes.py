"""Full nodes with confirmed pods, a pod of higher priority, and the victims by brute force over the
kubelet model.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping
from itertools import combinations

import msgspec

from services.scheduler.preempt.search import admissions
from services.scheduler.snapshot.config import CycleConfig
from shared.domain.pod import Pod
from shared.kubelet.admission import admit, drop_stale, remove
from shared.kubelet.machine import KubeletState
from tests.kubelet.machines import GPU, kubelet
from tests.scheduler.cycle_worlds import World
from tests.scheduler.kubelet_worlds import (
    NODE,
    gpus_of_zones,
    random_pod,
    report_of,
    with_some_between,
)

HIGH = 1000
MOST_ZONES = 4
# (highest priority of a victim, number of victims).
Cost = tuple[int, int]


class Full(msgspec.Struct, frozen=True):
    """A kubelet with pods of priorities below HIGH, and the pod that needs room."""

    state: KubeletState
    pod: Pod


def full_node(
    seed: int,
    policy: str,
    scope: str,
    inits: bool,
    most_zones: int = MOST_ZONES,
    between: float = 0.0,
) -> Full:
    """Zones filled with up to seven pods, larger ones in some scenes of more than two zones; with
    `inits` some have init containers and sidecars. A share of devices lies `between` zones."""
    rng = random.Random(seed)
    zones = rng.randint(1, most_zones)
    scale = rng.choice((1, 2)) if zones > 2 else 1
    gpus = with_some_between(f"{seed} between", zones, gpus_of_zones(rng, zones), between)
    state = kubelet(zones, policy, scope, cores_per_zone=rng.choice((2, 4)), gpus=gpus or {"g": 1})
    for number in range(rng.randint(2, 7)):
        state = admit(state, _pod(rng, f"p{number}", inits, rng.choice((0, 0, 1, 5)), scale)).state
    return Full(drop_stale(state), _pod(rng, "high", inits, HIGH, scale))


def _pod(rng: random.Random, name: str, inits: bool, priority: int, scale: int) -> Pod:
    drawn = random_pod(rng, name, scale=scale)
    while not inits and any(each.kind != "app" for each in drawn.containers):
        drawn = random_pod(rng, name, scale=scale)
    return msgspec.structs.replace(drawn, priority=priority)


def world_of(full: Full) -> World:
    """Return a ledger that has observed every pod running, and the newest report, with
    checkpoints.
    """
    world = World(CycleConfig())
    world.observe(
        NODE,
        allocatable={
            "cpu": 10**6,
            "memory": 1 << 50,
            GPU: 100,
            "hugepages-2Mi": 1 << 50,
            "pods": 1000,
        },
    )
    for active in full.state.pods.values():
        world.running(active.pod, NODE)
    world.report(report_of(full.state, stored=True))
    return world


def admits(state: KubeletState, pod: Pod, gone: Collection[str] = ()) -> bool:
    """Return the kubelet model's answer after these pods have ended, for every choice of devices.
    The scheduler is not asked.
    """
    for uid in sorted(gone):  # in what order a kubelet drops them can matter to groups of zones
        state = remove(state, uid)
    return all(each.admitted for each in admissions(drop_stale(state), pod))


def cheapest(full: Full) -> Cost | None:
    """Return the least cost of any set of victims without which the kubelet admits the pod; (0, 0)
    if it needs no victims.
    """
    if admits(full.state, full.pod):
        return (0, 0)
    priority = {uid: active.pod.priority for uid, active in full.state.pods.items()}
    uids = sorted(uid for uid in priority if priority[uid] < HIGH)
    sets = [
        frozenset(chosen) for size in range(1, len(uids) + 1) for chosen in combinations(uids, size)
    ]
    costs = [cost_of(each, priority) for each in sets if admits(full.state, full.pod, each)]
    return min(costs, default=None)


def cost_of(victims: frozenset[str], priority: Mapping[str, int]) -> Cost:
    """Return the cost by which the search compares victims first."""
    return max(priority[uid] for uid in victims), len(victims)
