"""Scenes in which a report leaves something open, or just does not: options of the CPU Manager,
reserved siblings, ended pods that the kubelet still holds, unhealthy devices, checkpoints or
layouts that nobody read, another kubelet version.

Built on `kubelet_worlds.scene`: a seed is drawn apart for what varies. The judge stays the kubelet
model.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any

import msgspec

from services.scheduler.explain import undecided as names
from services.scheduler.preempt.search import admissions
from services.scheduler.snapshot.config import CycleConfig
from shared.domain.pod import Container, Pod
from shared.domain.report import Report
from shared.events.cluster_events import PodEnded
from shared.hints.cpu import SPREAD, WHOLE_CORES
from shared.hints.devices import UNHEALTHY
from shared.kubelet.admission import drop_stale, remove
from shared.kubelet.cpu_options import (
    ACROSS_CORES,
    ACROSS_NUMA,
    ALIGN_BY_SOCKET,
    ALIGN_UNCORE,
    FULL_PCPUS_ONLY,
    STRICT_RESERVATION,
)
from shared.kubelet.device_state import Device, register
from shared.kubelet.machine import KubeletState
from shared.kubelet.versions import RULES
from shared.ledger.kubelet_states import OTHER_KUBELET
from tests.kubelet.machines import GIB, GPU
from tests.scheduler.cycle_worlds import World
from tests.scheduler.kubelet_worlds import (
    NODE,
    Made,
    Scene,
    offered_devices,
    proven_world,
    report_at,
    scene,
    unhealthy_devices,
    world_of,
)

OPTIONS, NO_LAYOUT, NO_CHECKPOINTS = "cpu options", "no layout", "no checkpoints"
UNHEALTHY, ENDED, VERSION, PICKS = (
    "unhealthy devices",
    "ended pods",
    "kubelet version",
    "device picks",
)

# The share of the scenes that has each number of these.
ZONES = (1, 2, 3, 4, 5, 6, 8)

# The default mix: the share of scenes with each.
SHARES: Mapping[str, float] = {
    OPTIONS: 0.3,
    NO_LAYOUT: 0.03,
    NO_CHECKPOINTS: 0.05,
    UNHEALTHY: 0.05,
    ENDED: 0.15,
    VERSION: 0.02,
    PICKS: 0.1,
}

# The share of scenes with ended pods in which no event shows the end. Scenes in which devices
# vanish are excluded: a zone may then offer other resources, so that the ledger forgets where
# unlisted pods were, and counts them as pending.
UNHEARD = 0.05

# The share of scenes with unhealthy devices in which the devices were unhealthy before the first
# report, so that no report listed them as healthy.
SINCE_BOOT = 0.4

WHOLE = (FULL_PCPUS_ONLY, ALIGN_BY_SOCKET, STRICT_RESERVATION)
SPREADING = (ACROSS_NUMA, ACROSS_CORES, ALIGN_UNCORE)
CPU_OPTIONS = (
    (FULL_PCPUS_ONLY,),
    (ALIGN_BY_SOCKET,),
    (FULL_PCPUS_ONLY, ALIGN_BY_SOCKET),
    (ACROSS_NUMA,),
    (ACROSS_NUMA, FULL_PCPUS_ONLY),
    (ACROSS_CORES,),
    (ALIGN_UNCORE,),
    (ALIGN_UNCORE, FULL_PCPUS_ONLY),
    (STRICT_RESERVATION,),
    (),
)


# A version that may have the rules of 1.35 or those of 1.36.
OLD_OR_NEW = "v1.36.0-rc.1"


class Draw(msgspec.Struct, frozen=True):
    """The random choices of one scene."""

    switches: frozenset[str]
    rng: random.Random

    def has(self, switch: str) -> bool:
        return switch in self.switches


def maker(
    policy: str,
    scope: str,
    zones: int | None,
    unconfirmed: int,
    shares: Mapping[str, float] = SHARES,
    **settings: Any,
) -> Callable[[int], Made]:
    """Scenes by seed, for `kubelet_worlds.measured`."""
    return lambda seed: made(seed, policy, scope, zones, unconfirmed, shares, **settings)


def made(
    seed: int,
    policy: str,
    scope: str,
    zones: int | None,
    unconfirmed: int,
    shares: Mapping[str, float] = SHARES,
    **settings: Any,
) -> Made:
    """Return one scene. Pods and devices change after the first report only if no admission is
    pending.
    """
    rng = random.Random(f"{seed} varied")
    draw = Draw(frozenset(name for name in SHARES if rng.random() < shares.get(name, 0.0)), rng)
    options = _options(draw, policy, zones) if draw.has(OPTIONS) else {}
    if draw.has(PICKS):
        settings = {**settings, "between": 0.7}
    if draw.has(VERSION) and rng.random() < 0.5:
        settings = {**settings, "rules": RULES[35]}
    seen = scene(seed, policy, scope, zones, unconfirmed, **{**settings, **options})
    if draw.has(PICKS):
        seen = msgspec.structs.replace(seen, pod=_with_devices(seen.pod, rng))
    stored = not draw.has(NO_CHECKPOINTS)
    if seen.unconfirmed:
        draw = Draw(draw.switches - {UNHEALTHY, ENDED}, rng)
        world, state_after = world_of(seen, CycleConfig(), stored), seen.base
        if draw.has(NO_LAYOUT):
            world.report(_told(report_at(state_after, stored, 1), draw))
    else:
        ill_before = (
            draw.has(UNHEALTHY) and random.Random(f"{seed} ill before").random() < SINCE_BOOT
        )
        world, state_after = _happened(
            _with_ill(seen.base, draw) if ill_before else seen.base, draw, stored, ill_before
        )
    if draw.has(VERSION):
        observed(world, state_after, OLD_OR_NEW)
    seen = Scene(state_after, seen.unconfirmed, seen.pod, seen.running)
    return Made(seen, world, _cases(seen, draw, options, stored))


def _with_devices(pod: Pod, rng: random.Random) -> Pod:
    """Each container requests devices, the last for much of a zone, too: the devices of one decide
    the rest of each zone.
    """
    cpus = [1, *rng.choice(((4,), (6,), (8,), (1, 4), (1, 7)))]
    asked = [{"cpu": each * 1000, "memory": GIB, GPU: rng.choice((1, 1, 2))} for each in cpus]
    containers = tuple(
        [Container(f"c{at}", "app", amounts, amounts) for at, amounts in enumerate(asked)]
    )
    return msgspec.structs.replace(pod, qos="Guaranteed", containers=containers)


def _options(draw: Draw, policy: str, zones: int | None) -> dict[str, Any]:
    chosen = draw.rng.choice(CPU_OPTIONS)
    if policy == "single-numa-node" and ALIGN_BY_SOCKET in chosen:
        chosen = (FULL_PCPUS_ONLY,)
    reserved = draw.rng.choice(
        ("0-1", "0", "0-2", f"0,{2 * (zones or 2)}", f"1,{4 * (zones or 2) - 1}")
    )
    uncores = 2 if ALIGN_UNCORE in chosen else 1
    return {
        "cpu_options": dict.fromkeys(chosen, "true"),
        "reserved_cpus": reserved,
        "uncores_per_zone": uncores,
    }


def _happened(
    base: KubeletState, draw: Draw, stored: bool, ill_before: bool
) -> tuple[World, KubeletState]:
    """Return what the cluster knows after a first report, and the state of the kubelet then."""
    world, state_after = proven_world(base, CycleConfig(), stored), base
    if draw.has(NO_LAYOUT):
        world.report(_told(report_at(base, stored, 2), draw))
    if draw.has(UNHEALTHY) and not ill_before:
        state_after = _with_ill(state_after, draw)
        if draw.rng.random() < 0.5:
            observed(world, state_after)
    gone = [uid for uid in state_after.pods if draw.rng.random() < 0.5] if draw.has(ENDED) else []
    for uid in gone:
        state_after = remove(state_after, uid)
    heard = gone if draw.rng.random() >= UNHEARD or draw.has(UNHEALTHY) else []
    early = draw.rng.random() < 0.5
    for uid in heard if early else ():
        world.fold(f"pod/{uid}", PodEnded(uid, "deleted", NODE))
    if draw.has(UNHEALTHY) or not heard or draw.rng.random() < 0.6:
        world.report(_told(report_at(state_after, stored, 3), draw))
    for uid in heard if not early else ():
        world.fold(f"pod/{uid}", PodEnded(uid, "deleted", NODE))
    return world, state_after


def _told(report: Report, draw: Draw) -> Report:
    return msgspec.structs.replace(report, cpus=None) if draw.has(NO_LAYOUT) else report


def observed(world: World, state: KubeletState, version: str = "v1.36.2") -> None:
    """Observe the Node object, which counts healthy and unhealthy devices."""
    seen = world.ledger.nodes[NODE].observed
    assert seen is not None
    offered = {**seen.allocatable, **offered_devices(state)}
    world.observe(
        NODE, allocatable=offered, kubelet_version=version, unhealthy=unhealthy_devices(state)
    )


def _with_ill(state: KubeletState, draw: Draw) -> KubeletState:
    """Return the kubelet with a share of its devices unhealthy. The plugin lists some of those no
    longer that no pod holds.
    """
    in_use, pool = state.devices.in_use.get(GPU, frozenset()), dict(state.devices.registered[GPU])
    for name in sorted(pool):
        if draw.rng.random() < 0.4:
            if name not in in_use and draw.rng.random() < 0.3 and len(pool) > 1:
                del pool[name]
            else:
                pool[name] = Device(pool[name].mask, False)
    return msgspec.structs.replace(state, devices=register(state.devices, GPU, pool))


def _cases(seen: Scene, draw: Draw, options: Mapping[str, Any], stored: bool) -> frozenset[str]:
    """Return the cases of the scene for which a filter result may be undecided."""
    chosen = options.get("cpu_options", {})
    state, pods = drop_stale(seen.base), [active.pod for active in seen.base.pods.values()]
    healthy = all(device.healthy for device in seen.base.devices.registered[GPU].values())
    holds = {
        names.MEMORY_GROUPS: not stored
        and any(node.cells & (node.cells - 1) for node in state.memory.nodes.values()),
        names.HIDDEN_INIT: not stored
        and any(each.kind == "init" for pod in pods for each in pod.containers),
        WHOLE_CORES: bool(chosen.keys() & set(WHOLE))
        or options.get("reserved_cpus", "0-1") != "0-1",
        SPREAD: bool(chosen.keys() & set(SPREADING)) or draw.has(NO_LAYOUT),
        names.PICKS: not seen.unconfirmed and _picks_differ(seen),
        UNHEALTHY: not healthy or draw.has(UNHEALTHY),
        names.ENDED_HELD: bool(seen.base.stale.cpu),
        OTHER_KUBELET: draw.has(VERSION),
    }
    return frozenset(name for name, there in holds.items() if there)


def _picks_differ(seen: Scene) -> bool:
    """Return whether there is more than one way to pick devices for the pod."""
    return sum(1 for _ in islice(admissions(seen.base, seen.pod), 2)) > 1
