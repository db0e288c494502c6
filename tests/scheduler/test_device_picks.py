"""Every way in which a kubelet may pick devices for a pod, against all combinations of their ids;
and preemption, which helps only if each of them admits.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator
from itertools import combinations

import pytest

from services.scheduler.preempt.search import (
    MOST_PICKS,
    admissions,
    admitted_whatever_it_picks,
)
from shared.domain.pod import Pod
from shared.kubelet.admission import Admission, admit, drop_stale
from shared.kubelet.machine import KubeletState
from tests.bench.preemption import measure
from tests.kubelet.machines import container, guaranteed, kubelet
from tests.scheduler.kubelet_worlds import random_pod, scene
from tests.scheduler.test_cycle_soundness import RULES


def every_combination(state: KubeletState, pod: Pod) -> Iterator[Admission]:
    """Yield the admission for every combination of device ids, equal devices included."""
    pending: list[list[int]] = [[]]
    while pending:
        script, ways = pending.pop(), list[int]()

        def pick(
            ids: Collection[str], count: int, script: list[int] = script, ways: list[int] = ways
        ) -> tuple[str, ...]:
            every = list(combinations(sorted(ids), count))
            depth = len(ways)
            ways.append(len(every))
            return every[script[depth] if depth < len(script) else 0]

        yield admit(state, pod, pick)
        for depth in range(len(script), len(ways)):
            chosen = [*script, *[0] * (depth - len(script))]
            pending += [[*chosen, other] for other in range(1, ways[depth])]


@pytest.mark.parametrize(("policy", "scope"), RULES)
def test_devices_of_the_same_zones_are_alike_and_no_way_is_left_out(
    policy: str, scope: str
) -> None:
    several = 0
    for seed in range(150):
        state, pod = (
            drop_stale(scene(seed, policy, scope, between=0.6).base),
            random_pod(random.Random(seed), "p", True),
        )
        expected = {each.admitted for each in every_combination(state, pod)}
        admissions_found = list(admissions(state, pod))
        assert {each.admitted for each in admissions_found} == expected, seed
        assert admitted_whatever_it_picks(state, pod) is (expected == {True}), seed
        several += len(admissions_found) > 1
    assert several or policy == "none"


def test_more_ways_than_are_looked_at_are_no_promise() -> None:
    """3 of 8 devices, each of them in zone 0 and another one, for each of two containers."""
    masks = {f"g{at}": 0b1 | 1 << at for at in range(8)}
    state, pod = (
        kubelet(8, "restricted", gpus=masks),
        guaranteed("p", container("c0", 0, 1, 3), container("c1", 0, 1, 3)),
    )
    assert sum(1 for _ in admissions(state, pod)) > MOST_PICKS
    assert not admitted_whatever_it_picks(state, pod)


# -- preemption
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("inits", [False, True])
@pytest.mark.parametrize(("policy", "scope"), RULES)
def test_victims_are_those_of_brute_force(policy: str, scope: str, inits: bool) -> None:
    outcome = measure(policy, scope, inits, range(100), between=0.7)
    assert outcome["exact"] > 12, "the scenes say nothing"
    assert {kind: count for kind, count in outcome.items() if kind not in ("exact", "nobody")} == {}
