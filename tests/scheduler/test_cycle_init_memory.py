"""Memory of init containers, which no listing shows, stays theirs until a later container starts,
in whichever zone it is.
"""

from __future__ import annotations

import pytest

from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.result import Placed, Unplaceable
from shared.domain.report import Placement, ZonedAmount
from shared.events.cluster_events import PodRunning
from shared.kubelet.admission import admit, start_containers
from tests.kubelet.machines import kubelet
from tests.scheduler.cycle_worlds import GIB, World, amounts, container, guaranteed, report, zone
from tests.scheduler.kubelet_worlds import NODE, Scene, report_of, truth, world_of

POLICIES = ["none", "best-effort", "single-numa-node"]


@pytest.mark.parametrize("policy", POLICIES)
def test_until_the_pod_runs_no_zone_is_sure_of_what_its_init_container_may_hold(
    policy: str,
) -> None:
    """The app container is in zone 0 and does not reuse the init container's memory in zone 1."""
    world = World()
    pod = guaranteed(
        "a", container("i", amounts(0.5, 40), "init"), container("c", amounts(0.5, 20))
    )
    world.bound(pod, "n")
    listed = Placement("ns", "a", "c", (ZonedAmount("memory", (0,), 20 * GIB),))
    zones = zone(0, amounts(8, 9), amounts(8, 59)), zone(1, amounts(8, 59))
    world.node("n", *zones)
    world.report(report("n", zones, policy=policy, placements=[listed], time_ms=2))
    large = guaranteed("b", container("c", amounts(0.5, 50)))
    assert isinstance(world.cluster.place(large), Unplaceable)
    world.fold("pod/a", PodRunning("a", "n"))
    assert isinstance(world.cluster.place(large), Placed)


@pytest.mark.parametrize("policy", POLICIES)
def test_so_does_the_kubelet(policy: str) -> None:
    state = kubelet(2, policy, "container", cores_per_zone=4)
    state = admit(state, guaranteed("there", container("c", amounts(0.5, 30)))).state
    pod = guaranteed(
        "a", container("i", amounts(0.5, 40), "init"), container("c", amounts(0.5, 20))
    )
    state = admit(state, pod).state
    large = guaranteed("b", container("c", amounts(0.5, 50)))
    assert not admit(state, large).admitted
    assert admit(start_containers(state, pod), large).admitted


@pytest.mark.parametrize("policy", POLICIES)
def test_a_pod_that_runs_before_a_report_shows_it_has_ended_its_init_containers(
    policy: str,
) -> None:
    """The init containers hold 40 of 59 GiB, and the pod keeps 10 of them. Until the pod runs, it
    may be admitted before the new pod and still hold all 40.
    """
    pod = guaranteed(
        "a", container("i", amounts(0.5, 40), "init"), container("c", amounts(0.5, 10))
    )
    large = guaranteed("b", container("c", amounts(0.5, 45)))
    for running, expected in ((False, "refused"), (True, "admitted")):
        seen = Scene(
            kubelet(1, policy, "container"), (pod,), large, frozenset({"a"} if running else ())
        )
        assert truth(seen) == expected
        assert (world_of(seen, CycleConfig()).cluster.verdict(large, NODE) is None) is running


@pytest.mark.parametrize("policy", POLICIES)
def test_what_the_memory_managers_own_figure_counts_is_not_charged_once_more(policy: str) -> None:
    """A kubelet that is restarted lists its devices a moment later, so that no pod is known to run;
    no container starts again, and newly given amounts of init containers stay theirs (seen with a
    real kubelet, 1.36.2).
    """
    pod = guaranteed(
        "a", container("i", amounts(0.5, 40), "init"), container("c", amounts(0.5, 10))
    )
    state = admit(kubelet(2, policy, "container"), pod).state
    world = World()
    world.observe(NODE)
    world.bound(pod, NODE)
    node_report = report_of(state, stored=True)
    world.report(node_report)
    charge, zones = world.ledger.nodes[NODE].charges["a"], world.ledger.nodes[NODE].free_min
    assert charge.confirmed
    assert not charge.is_admitted
    assert {each.id: each.free["memory"] for each in node_report.zones} == {
        zone: left["memory"] for zone, left in zones.items()
    }
