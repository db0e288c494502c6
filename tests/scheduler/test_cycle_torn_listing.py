"""A report is read while the kubelet admits a pod: next to the listed part, the rest is a pending
admission.

The kubelet model is the judge, as in `test_cycle_soundness`: the report is that of a moment within
an admission, after any of the allocations of any container; the states are those after that
admission.
"""

from __future__ import annotations

import random

import pytest

from services.exporter import core as exporter
from services.scheduler.snapshot.config import CycleConfig
from services.simulator import reading
from shared.domain.pod import Pod
from shared.domain.report import Freshness, Report
from shared.kubelet.admission import admission_steps, admit, drop_stale
from shared.kubelet.machine import KubeletState
from tests.scheduler.kubelet_worlds import NODE, Scene, proven_world, random_pod, scene, truth

# Within an admission, after it, and who is admitted.
Moment = tuple[KubeletState, KubeletState, Pod]


def moments(seed: int, base: KubeletState) -> list[Moment]:
    """The moments of one admission that succeeds, but for the first, which shows nothing, and the
    last, which shows all.
    """
    pod = random_pod(random.Random(f"torn {seed}"), "torn")
    verdict = admit(base, pod)
    if not verdict.admitted:
        return []
    return [
        (state, drop_stale(verdict.state), pod) for state in list(admission_steps(base, pod))[1:-1]
    ]


def listed(state: KubeletState, pod: Pod, stored: bool) -> Report:
    """Return the report of an exporter that reads the kubelet at this moment."""
    pods = [*(active.pod for active in state.pods.values() if active.pod.uid != pod.uid), pod]
    return exporter.report(
        NODE, "test", reading.scan(state, pods, Freshness("boot", 2), stored), exporter.Rules()
    )


def promised(seen: Scene, moment: Moment, stored: bool) -> bool:
    """Whether the scheduler would send the pod there."""
    state, _, pod = moment
    world = proven_world(seen.base, CycleConfig(), stored)
    for each in (pod, *seen.unconfirmed):
        world.bound(each, NODE)
    world.report(listed(state, pod, stored))
    return world.cluster.verdict(seen.pod, NODE) is None


@pytest.mark.parametrize("stored", [True, False], ids=["checkpoints", "listing alone"])
@pytest.mark.parametrize(
    ("policy", "scope"),
    [
        ("single-numa-node", "container"),
        ("single-numa-node", "pod"),
        ("restricted", "container"),
        ("best-effort", "container"),
    ],
)
def test_no_pod_is_promised_what_another_is_just_being_given(
    policy: str, scope: str, stored: bool
) -> None:
    unsound, passed = [], 0
    for seed in range(5000, 5150):
        seen = scene(seed, policy, scope, unconfirmed=1)
        for at, moment in enumerate(moments(seed, seen.base)):
            if promised(seen, moment, stored):
                passed += 1
                if truth(Scene(moment[1], seen.unconfirmed, seen.pod)) in ("refused", "endangers"):
                    unsound.append((seed, at))
    assert unsound == []
    assert passed > 10
