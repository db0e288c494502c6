"""Preemption against brute force over the kubelet model: who, how many, and nobody for a pod that has room already.

`python -m tests.bench preemption` plays 1,000 scenes a rule.
"""

from __future__ import annotations

import pytest

from tests.bench.preemption import judged, measure
from tests.scheduler.preemption_scenes import full_node
from tests.scheduler.test_cycle_soundness import RULES

SCENES = range(40)


@pytest.mark.parametrize("inits", [False, True])
@pytest.mark.parametrize(("policy", "scope"), RULES)
def test_victims_are_those_of_brute_force(policy: str, scope: str, inits: bool) -> None:
    found = measure(policy, scope, inits, SCENES)
    assert (found["for_nothing"], found["refused_after"]) == (0, 0), found
    assert found["exact"] > len(SCENES) // 8, "the scenes say nothing"
    assert (found["costlier"], found["missed"]) == (0, 0), found


def test_groups_of_zones_are_the_memory_managers_own() -> None:
    """A pod in one zone had come before the group that its zone is in by another one: who came first, no listing tells."""
    assert judged(full_node(956, "best-effort", "pod", True)) != "refused_after"
