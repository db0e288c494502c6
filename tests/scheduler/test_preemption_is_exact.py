"""Preemption against brute force over the kubelet model: the victims, their number, and none for a
pod that fits already.

At least a thousand scenes per policy: a failure names its seed, which `python -m tests.bench
preemption --seed SEED --scenes 1` plays again, for each rule. New scenes are the bench's.
"""

from __future__ import annotations

from collections import defaultdict

import pytest

from tests.bench.preemption import judged
from tests.scheduler.preemption_scenes import full_node
from tests.scheduler.test_cycle_soundness import RULES

# By scope and with or without init containers: policy `none` has one scope, the others have two.
SCENES = {"none": range(500)}
SCENES_OF_A_SCOPE = range(250)


@pytest.mark.parametrize("inits", [False, True])
@pytest.mark.parametrize(("policy", "scope"), RULES)
def test_victims_are_those_of_brute_force(policy: str, scope: str, inits: bool) -> None:
    seeds_of = defaultdict[str, list[int]](list)
    scenes = SCENES.get(policy, SCENES_OF_A_SCOPE)
    for seed in scenes:
        seeds_of[judged(full_node(seed, policy, scope, inits))].append(seed)
    right = {kind: len(seeds_of.pop(kind, ())) for kind in ("exact", "nobody")}
    assert not seeds_of, "outcomes by seed"
    assert right["exact"] > len(scenes) // 8, "the scenes say nothing"


def test_under_scope_pod_more_room_can_be_worse_too() -> None:
    """With both evicted the pod is rejected, with one of two it is admitted."""
    assert judged(full_node(500262, "best-effort", "pod", True)) == "exact"


def test_groups_of_zones_are_the_memory_managers_own() -> None:
    """A pod in one zone had come before the group of its zone was made by another: no listing shows
    their order.
    """
    assert judged(full_node(956, "best-effort", "pod", True, most_zones=2)) != "refused_after"
