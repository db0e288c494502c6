"""A report is read while the kubelet admits a pod: next to the listed part, the rest is a pending
admission.

The kubelet model is the judge, as in `test_cycle_soundness`: the report is that of a moment within
an admission, after any of the allocations of any container; the states are those after that
admission.
"""

from __future__ import annotations

import random
from itertools import permutations

import pytest

from services.exporter import core as exporter
from services.scheduler.filter.topology.fit import search_result
from services.scheduler.snapshot.config import CycleConfig
from services.simulator import reading
from shared.domain.pod import Pod
from shared.domain.report import Freshness, Placement, Report, ZonedAmount
from shared.events.cluster_events import PodEnded
from shared.kubelet.admission import admission_steps, admit, drop_stale, remove
from shared.kubelet.machine import KubeletState
from tests.scheduler.cycle_worlds import World, amounts, container, guaranteed, zone
from tests.scheduler.cycle_worlds import report as made_report
from tests.scheduler.kubelet_worlds import NODE, Scene, proven_world, random_pod, scene, truth

# The state during an admission, the state after it, and the admitted pod.
Moment = tuple[KubeletState, KubeletState, Pod]


def moments(seed: int, base: KubeletState) -> list[Moment]:
    """Return the moments of one successful admission, without the first, at which podresources
    shows nothing of the pod, and the last, at which it shows everything.
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
    """Return whether the scheduler would place the pod there."""
    state, _, pod = moment
    world = proven_world(seen.base, CycleConfig(), stored)
    for expected in (pod, *seen.unconfirmed):
        world.bound(expected, NODE)
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
        for number, moment in enumerate(moments(seed, seen.base)):
            if promised(seen, moment, stored):
                passed += 1
                if truth(Scene(moment[1], seen.unconfirmed, seen.pod)) in ("refused", "endangers"):
                    unsound.append((seed, number))
    assert unsound == []
    assert passed > 10


def test_no_pod_is_promised_what_a_torn_pod_held_that_ended_since() -> None:
    """The pending pods were admitted before or after the end, or are not admitted yet."""
    unsound, passed = [], 0
    for seed in range(6000, 6300):
        seen = scene(seed, "single-numa-node", "container", unconfirmed=2)
        for number, (state, state_after, pod) in enumerate(moments(seed, seen.base)):
            world = proven_world(seen.base, CycleConfig(), True)
            for expected in (pod, *seen.unconfirmed):
                world.bound(expected, NODE)
            world.report(listed(state, pod, True))
            world.fold(f"pod/{pod.uid}", PodEnded(pod.uid, "succeeded", NODE))
            if world.cluster.verdict(seen.pod, NODE) is None:
                passed += 1
                states = after_end(state_after, pod, seen.unconfirmed)
                if not all(admit(state, seen.pod).admitted for state in states):
                    unsound.append((seed, number))
    assert unsound == []
    assert passed > 10


def after_end(state: KubeletState, pod: Pod, others: tuple[Pod, ...]) -> list[KubeletState]:
    """Return the states after the pod's end, if some of the others were admitted before it and some
    after.
    """
    states = []
    for count in range(len(others) + 1):
        for order in permutations(others, count):
            for split in range(count + 1):
                current = state
                for ended in order[:split]:
                    current = drop_stale(admit(current, ended).state)
                current = drop_stale(remove(current, pod.uid))
                for ended in order[split:]:
                    current = drop_stale(admit(current, ended).state)
                states.append(current)
    return states


def torn(world: World) -> None:
    """A of 2 CPUs and 1 Gi: its CPUs are listed in zone 0, its memory is not."""
    world.observe("n")
    world.bound(guaranteed("a", container("c", amounts(2, 1))), "n")
    listed_cpus = Placement("ns", "a", "c", (ZonedAmount("cpu", (0,), 2000),))
    zones = [zone(0, amounts(2, 8), amounts(4, 8)), zone(1, amounts(4, 8))]
    world.report(made_report("n", zones, placements=[listed_cpus]))


@pytest.mark.parametrize("ended", [False, True])
def test_the_rest_of_a_torn_pod_of_one_container_is_known(ended: bool) -> None:
    """B is on its way, so the search is asked, and need not wait for a report. With B in zone 1,
    zone 0 has 7 Gi next to A, and 8 after A has ended.
    """
    for asked, fits in ((7, True), (8, ended)):
        world = World()
        torn(world)
        world.bound(guaranteed("b", container("c", amounts(4, 8))), "n")
        if ended:
            world.fold("pod/a", PodEnded("a", "succeeded", "n"))
        newcomer = guaranteed("new", container("c", amounts(2, asked)))
        node_info = world.cluster.node("n")
        assert node_info is not None
        plan, _ = world.cluster.evaluator.plan(
            world.cluster.evaluator.pod_class(newcomer), node_info
        )
        assert search_result(node_info, plan, 256) == ("admitted" if fits else "refused")
