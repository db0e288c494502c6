"""If nothing is unknown, only the kubelet's own choice counts, and not every branch between two
bounds.
"""

from __future__ import annotations

import pytest

from services.scheduler.snapshot.result import Placed, Unplaceable
from shared.domain.pod import Pod
from shared.events.cluster_events import PodObserved
from shared.events.scheduling_events import PodNominated
from tests.scheduler.cycle_worlds import World, amounts, container, guaranteed, zone


@pytest.mark.parametrize("policy", ["single-numa-node", "restricted"])
def test_on_a_known_state_containers_go_to_the_lowest_zone_that_fits(policy: str) -> None:
    """Both sidecars go to zone 0, and zone 1 is left to the app container."""
    world = World()
    world.node("n", zone(0, amounts(3)), zone(1, amounts(3)), policy=policy)
    sidecars = container("s0", amounts(1), "sidecar"), container("s1", amounts(1), "sidecar")
    assert isinstance(
        world.cluster.place(guaranteed("p", *sidecars, container("c", amounts(3)))), Placed
    )


@pytest.mark.parametrize("policy", ["single-numa-node", "restricted"])
def test_next_to_a_pod_that_may_be_anywhere_every_branch_counts(policy: str) -> None:
    """One CPU, in whatever zone, may send the sidecars to different zones."""
    world = World()
    world.node("n", zone(0, amounts(3)), zone(1, amounts(3)), policy=policy)
    world.bound(guaranteed("other", container("c", amounts(2))), "n")
    sidecars = container("s0", amounts(1), "sidecar"), container("s1", amounts(1), "sidecar")
    assert isinstance(
        world.cluster.place(guaranteed("p", *sidecars, container("c", amounts(3)))), Unplaceable
    )


def test_the_lowest_zone_may_be_the_wrong_one() -> None:
    """The first container takes zone 0, which the second would need: a kubelet does not look
    ahead.
    """
    world = World()
    world.node("n", zone(0, amounts(4)), zone(1, amounts(2)))
    first, second = container("a", amounts(2)), container("b", amounts(4))
    assert isinstance(world.cluster.place(guaranteed("p", first, second)), Unplaceable)
    assert isinstance(world.cluster.place(guaranteed("q", second, first)), Placed)


def test_four_containers_under_none_need_no_zone_for_all_of_their_memory() -> None:
    world = World()
    world.node("n", zone(0, amounts(5, 4)), zone(1, amounts(5, 4)), policy="none")
    parts = (
        container("s0", amounts(2, 2), "sidecar"),
        container("s1", amounts(3, 1), "sidecar"),
        container("c0", amounts(1, 0.25)),
    )
    assert isinstance(
        world.cluster.place(guaranteed("p", *parts, container("c1", amounts(2, 2)))), Placed
    )


def test_best_effort_is_sure_where_each_container_finds_its_cpus_in_one_zone() -> None:
    world = World()
    world.node("n", *(zone(number, amounts(3, 8)) for number in range(3)), policy="best-effort")
    parts = container("c0", amounts(1, 1)), container("c1", amounts(3, 1))
    assert isinstance(world.cluster.place(guaranteed("p", *parts)), Placed)


def test_under_best_effort_an_init_container_draws_the_others_to_its_zone() -> None:
    """With empty zones all go to zone 0. If zone 0 has room for the init container only, its CPUs
    draw the app to a mask of several zones, and the app's memory goes to another zone of the mask.
    """
    pod = guaranteed("p", container("i", amounts(1, 1), "init"), container("c", amounts(2, 2)))
    for first, placed in ((amounts(8, 8), Placed), (amounts(1, 1), Placed)):
        world = World()
        world.node(
            "n",
            zone(0, first),
            *(zone(number, amounts(8, 8)) for number in range(1, 8)),
            policy="best-effort",
        )
        assert isinstance(world.cluster.place(pod), placed)


@pytest.mark.parametrize("nominee", ["p", "other"])
def test_claimed_amounts_are_free_to_a_kubelet(nominee: str) -> None:
    """As if zone 0 were taken, all would go to zone 1. In truth the sidecar and the init container
    go to zone 0, and draw the app container there, which finds too little (seed 795584358)."""
    world = World()
    world.node("n", zone(0, amounts(4), amounts(7)), zone(1, amounts(7)))
    pods = {name: _drawn(name) for name in ("p", "other")}
    world.fold(f"pod/{nominee}", PodObserved(pod=pods[nominee]))
    world.fold(f"pod/{nominee}", PodNominated(nominee, "n", ("victim",), {0: amounts(4)}))
    assert isinstance(world.cluster.place(pods["p"]), Unplaceable)


def _drawn(name: str) -> Pod:
    parts = (
        container("s", amounts(3), "sidecar"),
        container("i", amounts(1), "init"),
        container("c", amounts(3)),
    )
    return guaranteed(name, *parts)
