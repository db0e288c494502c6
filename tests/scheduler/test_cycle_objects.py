"""Nodes that NodeResourceTopology objects describe: no pod passes that the kubelet model rejects,
and amounts are enough to place pods wider than a zone.

`python -m tests.bench completeness --report nrt` runs more scenes.
"""

from __future__ import annotations

import pytest

from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.result import Placed
from shared.kubelet.admission import admit, drop_stale, start_containers
from tests.kubelet.machines import container, guaranteed, kubelet
from tests.scheduler.kubelet_worlds import NODE, measured, proven_world
from tests.scheduler.test_cycle_soundness import RULES


@pytest.mark.parametrize(("policy", "scope"), RULES)
def test_where_a_fingerprint_confirms_all_pods_it_is_sound_and_nearly_exact(
    policy: str, scope: str
) -> None:
    found = measured(range(8000, 8090), policy, scope, unconfirmed=0, as_object=True)
    assert (found.unsound, found.refused_needlessly) == ([], [])
    assert found.passed > 25
    assert len(found.refused_within_bounds) <= 0.25 * found.passed


@pytest.mark.parametrize("zones", [4, 8])
@pytest.mark.parametrize(("policy", "scope"), RULES)
def test_next_to_pending_admissions_it_is_sound(policy: str, scope: str, zones: int) -> None:
    found = measured(range(8200, 8215), policy, scope, unconfirmed=2, as_object=True, zones=zones)
    assert found.unsound == []


@pytest.mark.parametrize("policy", ["restricted", "best-effort", "none"])
def test_on_a_half_full_node_a_pod_wider_than_a_zone_is_placed(policy: str) -> None:
    """Two of four zones are in use: 12 CPUs and 100 GiB fit the other two."""
    state = kubelet(4, policy, cores_per_zone=4)
    for name in ("a", "b"):
        pod = guaranteed(name, container(cpu=6, memory=40))
        admitted = admit(state, pod)
        assert admitted.admitted
        state = start_containers(admitted.state, pod)
    world = proven_world(drop_stale(state), CycleConfig(), as_object=True)
    wide = guaranteed("wide", container(cpu=12, memory=100))
    assert admit(state, wide).admitted
    placed = world.cluster.place(wide)
    assert isinstance(placed, Placed)
    assert world.ledger.nodes[NODE].listed is None


def test_a_group_of_zones_that_amounts_show_keeps_a_pod_out() -> None:
    """100 GiB lie over both zones, so that neither gives memory of its own (restricted)."""
    state = kubelet(2, "restricted", cores_per_zone=8)
    wide = guaranteed("wide", container(cpu=20, memory=100))
    state = start_containers(admit(state, wide).state, wide)
    world = proven_world(drop_stale(state), CycleConfig(), as_object=True)
    small = guaranteed("small", container(cpu=4, memory=4))
    assert not admit(state, small).admitted
    assert not isinstance(world.cluster.place(small), Placed)
