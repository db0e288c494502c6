"""A charge is at least what a kubelet can give the pod, zone by zone, and on the node as a whole;
and the charge of a confirmed pod is at least what the kubelet holds for it beyond its listing,
unless the Memory Manager's own figure includes that."""

from __future__ import annotations

import random

import pytest

from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.node_info import held_once
from shared.domain.demand import ContainerDemand, zonal_demand
from shared.domain.pod import Pod
from shared.domain.report import POD_LEVEL, Placement, Report, ZonedAmount
from shared.domain.resources import Amounts, is_memory
from shared.events.cluster_events import PodEnded
from shared.kubelet.admission import admit, drop_stale, placements, remove, start_containers
from shared.kubelet.machine import KubeletState
from shared.ledger.charge import charge_zones, possible_zones
from shared.ledger.confirmation import covers, held_zones, residual
from shared.ledger.reports import by_key
from shared.ledger.state import Charge, ZoneAmounts
from shared.ledger.view import total
from tests.scheduler.cycle_worlds import World
from tests.scheduler.kubelet_worlds import (
    NODE,
    any_state,
    free_of,
    proven_world,
    random_pod,
    report_of,
    scene,
    world_of,
)
from tests.scheduler.test_cycle_soundness import RULES

SCENES = 150
PODS = 10


@pytest.mark.parametrize("between", [0.0, 0.5])
@pytest.mark.parametrize(("policy", "scope"), RULES)
def test_no_kubelet_gives_a_pod_more_than_it_is_charged(
    policy: str, scope: str, between: float
) -> None:
    pods = 0
    for seed in range(SCENES):
        chance = random.Random(seed)
        state = any_state(seed, policy, scope, between)
        drawn = [random_pod(chance, f"p{number}") for number in range(PODS)]
        for pod in (pod for pod in drawn if pod.containers[0].kind == "init"):
            verdict = admit(state, pod)
            if verdict.admitted:
                pods += 1
                state_after = drop_stale(verdict.state)
                _check(pod, state, state_after)
                _check_hidden(pod, state, state_after)
    assert pods > SCENES // 2


def _charged(
    pod: Pod, before: KubeletState, state_after: KubeletState
) -> tuple[Report, Charge, ZoneAmounts]:
    """Return the report from before the pod's admission, the pod's charge by this report, and what
    the kubelet took for the pod in each zone.
    """
    was, free, remaining = report_of(before), free_of(before), free_of(state_after)
    demand = zonal_demand(pod, was.tracked)
    possible = possible_zones(demand, was, free)
    charge = Charge(
        pod.uid,
        pod.key,
        0,
        demand,
        possible,
        zones=charge_zones(demand, possible, tuple(free), was),
    )
    return (
        was,
        charge,
        {
            zone: {n: amount - remaining[zone][n] for n, amount in held.items()}
            for zone, held in free.items()
        },
    )


def _check(pod: Pod, before: KubeletState, state_after: KubeletState) -> None:
    _, charge, taken = _charged(pod, before, state_after)
    _within(taken, charge, _groups(state_after, pod))
    whole, once = held_once(charge), total(taken.values()) | _devices(before, state_after)
    assert all(amount <= whole.get(name, 0) for name, amount in once.items() if not is_memory(name))


def _devices(before: KubeletState, state_after: KubeletState) -> Amounts:
    """Return as many devices as the kubelet gave. A device of two zones counts once."""
    return {
        name: len(held) - len(before.devices.in_use.get(name, ()))
        for name, held in state_after.devices.in_use.items()
    }


def _check_hidden(pod: Pod, before: KubeletState, state_after: KubeletState) -> None:
    """Without checkpoints the listing has no uid and no init containers. Once the pod runs, memory
    is free.
    """
    for stored in (False, True):
        _check_listed(pod, before, state_after, False, stored)
        _check_listed(pod, before, start_containers(state_after, pod), True, stored)


def _check_listed(
    pod: Pod, before: KubeletState, state_after: KubeletState, runs: bool, stored: bool
) -> None:
    was, charge, taken = _charged(pod, before, state_after)
    charge.runs_at, groups, report = (
        int(runs),
        _groups(state_after, pod) or _groups(before, pod),
        report_of(state_after, stored),
    )
    listed = by_key(report.placements or ())[pod.key]
    if not covers(charge.demand, listed):
        return
    shown, kept, reported = (
        held_zones(listed),
        residual(charge, listed, report),
        any(part.pod_uid for part in listed),
    )
    figures, remaining = {part.id: part.free for part in report.zones}, free_of(state_after)
    for zone in was.zones:
        for name, amount in taken[zone.id].items():
            if name in figures[zone.id]:
                assert figures[zone.id][name] == remaining[zone.id][name], (
                    "whatever init containers hold"
                )
                continue
            hidden = amount - shown.get(zone.id, Amounts()).get(name, 0)
            if not (groups and is_memory(name)):
                charged = kept.get(zone.id, Amounts()).get(name, 0)
                assert hidden <= charged, (zone.id, name, hidden, kept, charge)
                assert charged == hidden or is_memory(name) or not reported, (
                    "checkpoints tell CPUs and devices exactly"
                )


def _within(taken: ZoneAmounts, charge: Charge, groups: bool) -> None:
    for zone, amounts in taken.items():
        for name, amount in amounts.items():
            if not (groups and is_memory(name)):
                assert amount <= charge.zones.get(zone, Amounts()).get(name, 0), (
                    zone,
                    name,
                    charge,
                )


def _groups(state: KubeletState, pod: Pod) -> bool:
    """Return True if memory is in several zones at once: how it is split between them is the Memory
    Manager's, and what a pod gives back of such zones may be another's."""
    if any(node.cells.bit_count() > 1 for node in state.memory.nodes.values()):
        return True
    return any(
        block.mask.bit_count() > 1 for held in placements(state, pod) for block in held.memory
    )


@pytest.mark.parametrize("checkpoints", [True, False])
@pytest.mark.parametrize("seed", [26112664, 26112722, 26112731])
def test_an_end_frees_no_memory_that_another_pod_holds_in_two_zones(
    seed: int, checkpoints: bool
) -> None:
    """The pods hold memory over zones 0 and 1, together more than the report can count there."""
    state = scene(seed, "best-effort", "pod", unconfirmed=0).base
    for uid in state.pods:
        world = proven_world(state, CycleConfig(), checkpoints)
        world.fold(f"pod/{uid}", PodEnded(uid, "deleted", NODE))
        _check_memory(world, remove(state, uid))


@pytest.mark.parametrize("seed", [26112186, 26112813])
def test_an_end_may_free_memory_in_another_zone_of_its_block(seed: int) -> None:
    """A pod holds memory over zones 0 and 1, another pod has some in one of them. At the end of the
    first the Memory Manager gives back what the second took."""
    rng, state = random.Random(seed), scene(seed, "best-effort", "container").base
    for number in range(rng.randint(0, 4)):
        pod = random_pod(rng, f"more{number}", rng.random() < 0.5)
        verdict = admit(state, pod)
        state = drop_stale(verdict.state)
        state = start_containers(state, pod) if verdict.admitted else state
    for uid in [uid for uid in state.pods if rng.random() < 0.4]:
        state = remove(state, uid)
    state = drop_stale(state)
    world = proven_world(state, CycleConfig())
    world.fold("pod/settled0", PodEnded("settled0", "deleted", NODE))
    _check_memory(world, remove(state, "settled0"))


def test_an_end_next_to_pods_that_no_report_shows() -> None:
    seen = scene(26112615, "best-effort", "pod", 6)
    state = seen.base
    for pod in seen.unconfirmed:
        state = drop_stale(admit(state, pod).state)
    assert len(seen.base.pods) == len(seen.unconfirmed) == 2
    for uid in seen.base.pods:
        world = world_of(seen, CycleConfig())
        world.fold(f"pod/{uid}", PodEnded(uid, "deleted", NODE))
        _check_memory(world, remove(state, uid))


def _check_memory(world: World, state: KubeletState) -> None:
    truth = free_of(state)
    for zone, amounts in world.ledger.nodes[NODE].free_min.items():
        for name in filter(is_memory, amounts):
            assert amounts[name] <= truth[zone][name], (zone, name)


def test_the_one_entry_of_a_pod_in_a_cut_report_covers_the_sum_of_its_containers() -> None:
    demand = (
        ContainerDemand("a", "app", {"cpu": 2000}),
        ContainerDemand("b", "app", {"cpu": 1000}),
        ContainerDemand("i", "init", {"cpu": 9000}),
    )

    def entry(milli: int) -> Placement:
        return Placement("default", "p", POD_LEVEL, (ZonedAmount("cpu", (0,), milli),))

    assert covers(demand, [entry(3000)])
    assert not covers(demand, [entry(2999)])
    assert not covers(demand, [entry(3000), Placement("default", "p", "a")])
