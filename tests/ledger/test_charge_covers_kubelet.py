"""A charge is at least what a kubelet can give the pod, zone by zone, and on the node as a whole."""

from __future__ import annotations

import random

import pytest

from services.scheduler.deciding.node_facts import held_once
from shared.domain.demand import zonal_demand
from shared.domain.pod import Pod
from shared.domain.resources import Amounts, is_memory
from shared.kubelet.admission import admit, placements, settle
from shared.kubelet.machine import KubeletState
from shared.ledger.charge import charge_zones, possible_zones
from shared.ledger.state import Charge, ZoneAmounts
from shared.ledger.view import total
from tests.scheduler.kubelet_worlds import consistent_states, random_pod, report_of, scene
from tests.scheduler.test_cycle_soundness import RULES

SCENES = 250
PODS = 10


@pytest.mark.parametrize(("policy", "scope"), RULES)
def test_no_kubelet_gives_a_pod_more_than_it_is_charged(policy: str, scope: str) -> None:
    pods = 0
    for seed in range(SCENES):
        chance = random.Random(seed)
        state = next(consistent_states(scene(seed, policy, scope), seed, 1))
        drawn = [random_pod(chance, f"p{number}") for number in range(PODS)]
        for pod in (pod for pod in drawn if pod.containers[0].kind == "init"):
            verdict = admit(state, pod)
            if verdict.admitted:
                pods += 1
                _check(pod, state, settle(verdict.state))
    assert pods > SCENES // 2


def _check(pod: Pod, before: KubeletState, after: KubeletState) -> None:
    was, now = report_of(before), report_of(after)
    demand = zonal_demand(pod, was.tracked)
    free = {zone.id: {name: held.available for name, held in zone.resources.items()} for zone in was.zones}
    left = {zone.id: {name: held.available for name, held in zone.resources.items()} for zone in now.zones}
    possible = possible_zones(demand, was, free)
    charge = Charge(pod.uid, pod.key, 0, demand, possible, zones=charge_zones(demand, possible, tuple(free)))
    taken = {zone: {name: amount - left[zone][name] for name, amount in held.items()} for zone, held in free.items()}
    _within(taken, charge, _groups(after, pod))
    whole = held_once(charge)
    assert all(amount <= whole.get(name, 0) for name, amount in total(taken.values()).items() if not is_memory(name))


def _within(taken: ZoneAmounts, charge: Charge, groups: bool) -> None:
    for zone, amounts in taken.items():
        for name, amount in amounts.items():
            if not (groups and is_memory(name)):
                assert amount <= charge.zones.get(zone, Amounts()).get(name, 0), (zone, name, charge)


def _groups(state: KubeletState, pod: Pod) -> bool:
    """Whether the pod has memory of several zones: how it is split between them is the Memory Manager's."""
    return any(block.mask.bit_count() > 1 for held in placements(state, pod) for block in held.memory)
