"""Kubelets of which one of two rule sets is true: the hints of devices may cover every zone, or
those with some. A pod that passes is admitted by both; for a certain version the verdict is its
own.
"""

from __future__ import annotations

import msgspec
import pytest

from services.scheduler.explain.undecided import of_pod
from services.scheduler.preempt.search import admitted_whatever_it_picks
from services.scheduler.snapshot.config import CycleConfig
from shared.kubelet.device_state import HintNodes
from shared.kubelet.machine import KubeletState
from shared.ledger.kubelet_states import OTHER_KUBELET
from tests.scheduler.cycle_worlds import World
from tests.scheduler.kubelet_worlds import NODE, proven_world, scene
from tests.scheduler.varied_scenes import observed

SCENES = range(400)
# The last version may have the rules of 1.35 or those of 1.36.
BEARING, ALL, EITHER = "v1.36.2", "v1.35.4", "v1.36.0-rc.1"


def over(state: KubeletState, nodes: HintNodes) -> KubeletState:
    return msgspec.structs.replace(
        state, devices=msgspec.structs.replace(state.devices, hint_nodes=nodes)
    )


def world_with(state: KubeletState, version: str) -> World:
    world = proven_world(state, CycleConfig())
    observed(world, state, version)
    return world


@pytest.mark.parametrize("scope", ["container", "pod"])
def test_whichever_zones_hints_cover_a_pod_that_passes_is_admitted(scope: str) -> None:
    """Some of these scenes differ by it, or the test shows nothing."""
    passed, refused, told_apart = 0, 0, 0
    for seed in SCENES:
        seen = scene(seed, "best-effort", scope, 2 + seed % 5, unconfirmed=0)
        narrow, wide = over(seen.base, "bearing"), over(seen.base, "all")
        by_both = [admitted_whatever_it_picks(each, seen.pod) for each in (narrow, wide)]
        world = world_with(seen.base, EITHER)
        if by_both[0] is not by_both[1]:
            told_apart += 1
            assert OTHER_KUBELET in of_pod(world.cluster, seen.pod, NODE), seed
        passes = world.cluster.verdict(seen.pod, NODE) is None
        passed, refused = passed + passes, refused + (all(by_both) and not passes)
        assert all(by_both) or not passes, seed
        for version, admitted in zip((BEARING, ALL), by_both, strict=True):
            verdict = world_with(seen.base, version).cluster.verdict(seen.pod, NODE)
            assert (verdict is None) is admitted, (seed, version)
    assert told_apart
    assert passed > 10 * refused


@pytest.mark.parametrize("policy", ["single-numa-node", "restricted"])
def test_elsewhere_it_makes_no_difference(policy: str) -> None:
    """The narrowest zones that could ever be enough bear devices, and no other zones are
    preferred.
    """
    for seed in SCENES[:150]:
        seen = scene(seed, policy, "container", 2 + seed % 5, unconfirmed=0)
        by_both = {
            admitted_whatever_it_picks(over(seen.base, each), seen.pod)
            for each in ("bearing", "all")
        }
        assert by_both == {world_with(seen.base, EITHER).cluster.verdict(seen.pod, NODE) is None}, (
            seed
        )
