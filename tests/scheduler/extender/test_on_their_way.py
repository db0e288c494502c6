"""The filter's answer next to pending admissions equals the outcome of the binding: no pod takes
their place.
"""

from __future__ import annotations

from services.scheduler.extender.verbs import Texts, filtered, placed_on
from services.scheduler.snapshot.result import Placed
from tests.scheduler.cycle_worlds import World, amounts, container, guaranteed, zone
from tests.scheduler.test_cycle_last_resort import LIMITS, asks, crowded, simple


def test_the_filter_rejects_a_pod_that_would_take_the_place_of_a_pending_admission() -> None:
    """Zone 1 surely has room, but the kubelet allocates the lowest zone that fits, and that is the
    only zone for the pending pod.
    """
    for coming, passes in ((amounts(4, gpu=1), False), (amounts(4), True)):
        world = World()
        world.node("n", zone(0, amounts(6, gpu=1)), zone(1, amounts(8), amounts(8, gpu=1)))
        world.bound(guaranteed("a", container("c", coming)), "n")
        new = guaranteed("b", container("c", amounts(4)))
        outcome = filtered(world.cluster, new, ["n"], Texts())
        assert (outcome.passing, list(outcome.failed)) == ((["n"], []) if passes else ([], ["n"]))
        assert isinstance(placed_on(world.cluster, new, "n"), Placed) is passes


def test_where_no_node_passes_a_larger_budget_is_tried_as_for_our_own_pods() -> None:
    """The filter, and the binding that follows it: one node is searched in vain, the other takes
    the pod.
    """
    world = World(LIMITS)
    crowded(world, "n0")
    simple(world, "z")
    late = asks("late", 6)
    outcome = filtered(world.cluster, late, ["n0", "z"], Texts())
    assert (outcome.passing, [*outcome.failed, *outcome.unresolvable]) == (["z"], ["n0"])
    assert filtered(world.cluster, late, ["n0"], Texts()).passing == []
    assert isinstance(placed_on(world.cluster, late, "z"), Placed)
