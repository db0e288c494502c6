"""Zones of other schedulers' nominees: pods that would take the zone that others are evicted from,
and harmless pods.
"""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.scheduler.filter.constraints.constraint import ClusterView
from services.scheduler.filter.constraints.nominated import leaves_a_zone, zones_kept
from services.scheduler.filter.constraints.placed_pods import PlacedPods
from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.node_info import NodeInfo
from services.scheduler.state.cluster_objects import ClusterObjects
from services.scheduler.state.exclusions import Exclusions
from services.scheduler.watch.cluster_objects import nomination_of
from shared.domain.pod import Pod
from shared.events.surroundings_events import NominationObserved
from tests.ledger.given import History, container, held, pod, zone
from tests.scheduler.default.story import Story
from tests.scheduler.default.test_nominated import nominee

KEPT = "1 node(s) were kept free for the nominated pod ns/other of another scheduler"


def nominated(cpus: int, priority: int = 0) -> NominationObserved:
    """Return the observer's event of a nominated pod with a container of this many
    exclusive CPUs.
    """
    amounts = {"cpu": str(cpus), "memory": "1Gi"}
    spec = {
        "priority": priority,
        "containers": [
            {"name": "c", "image": "x", "resources": {"requests": amounts, "limits": amounts}}
        ],
    }
    nomination = nomination_of(ClusterObjects(), "topolog", {**nominee(), "spec": spec})
    assert isinstance(nomination, NominationObserved)
    return nomination


async def half_full(**report: object) -> Story:
    """Zone 0 has 8 CPUs free, zone 1 has 4 of 8."""
    story = Story()
    await story.node()
    await story.report(zone(0, 8), zone(1, 8, 4), **{"tracked": ("cpu",), **report})  # type: ignore[arg-type]
    return story


async def outcome(story: Story, made: Pod) -> str:
    """Return the pod's node, or the message of its outcome."""
    await story.arrives(made)
    node_name = (await story.decide()).get(made.uid)
    return node_name or (await story.verdicts(made))[-1]


async def test_a_pod_that_would_take_the_zone_waits_and_a_pod_that_leaves_room_does_not() -> None:
    story = await half_full()
    await story.tell("nomination/uid-other", nominated(6))
    assert KEPT in await outcome(story, pod("large", cpus=4))
    assert await outcome(story, pod("small", cpus=2)) == "n1"
    assert KEPT in await outcome(story, pod("next", cpus=1)), (
        "6 and what is on its way fill the zone"
    )


async def test_the_zone_is_free_when_the_nominee_has_it() -> None:
    story = await half_full()
    await story.tell("nomination/uid-other", nominated(6))
    assert KEPT in await outcome(story, pod("large", cpus=4))
    await story.seen_bound(pod("other", cpus=6))
    assert await story.decide() == {}, "nobody knows yet where it is"
    await story.report(
        zone(0, 8, 2), zone(1, 8, 4), at=2, tracked=("cpu",), placements=(held("other", 0, 6),)
    )
    assert await story.decide() == {"uid-large": "n1"}


async def test_where_the_victims_still_run_a_pod_may_have_what_they_do_not_free() -> None:
    story = Story()
    await story.node()
    victim = pod("victim", cpus=6)
    await story.report(
        zone(0, 8, 2), zone(1, 8, 4), tracked=("cpu",), placements=(held("victim", 0, 6),)
    )
    await story.seen_bound(victim, phase="Running", terminating=True)
    await story.tell("nomination/uid-other", nominated(8))
    assert KEPT in await outcome(story, pod("beside", cpus=2)), "it could land beside the victim"
    assert await outcome(story, pod("elsewhere", cpus=4)) == "n1"


@pytest.mark.parametrize(
    ("given_pod", "report"),
    [
        (pod("above", cpus=4, priority=1), {}),
        (pod("shared", container("c", memory=1 << 20)), {}),
        (pod("p", cpus=4), {"policy": "best-effort"}),
        (pod("p", cpus=4), {"policy": "none"}),
    ],
)
async def test_others_do_not_wait(given_pod: Pod, report: dict[str, object]) -> None:
    story = await half_full(**report)
    await story.tell("nomination/uid-other", nominated(6))
    assert await outcome(story, given_pod) == "n1"


async def test_under_restricted_a_container_may_take_every_zone_that_fits() -> None:
    """Two zones hold the nominee, and one container of ten CPUs takes both."""
    story = await half_full(policy="restricted")
    await story.report(zone(0, 8), zone(1, 8), at=2, tracked=("cpu",), policy="restricted")
    await story.tell("nomination/uid-other", nominated(6))
    assert KEPT in await outcome(story, pod("wide", cpus=10))


async def test_a_nominee_that_finds_no_zone_keeps_none() -> None:
    """Its zone is unknown."""
    story = await half_full()
    await story.tell("nomination/uid-other", nominated(9))
    assert await outcome(story, pod("p", cpus=4)) == "n1"


cpus = st.integers(1, 8)


@given(
    free=st.lists(st.integers(0, 8), min_size=1, max_size=4),
    parts=st.lists(cpus, min_size=1, max_size=3),
    wanted=cpus,
)
def test_a_pod_that_passes_leaves_the_zone_wherever_its_containers_go(
    free: list[int], parts: list[int], wanted: int
) -> None:
    """Every way is tried in which a kubelet could place them one by one; a rejected pod could take
    the zone in one of those, or might by bounds.
    """
    history = History()
    history.node(allocatable={"cpu": 64_000, "pods": 110})
    history.report(*(zone(number, 8, left) for number, left in enumerate(free)), tracked=("cpu",))
    node_info = NodeInfo("n1", 0)
    node_info.update_from(history.n1, CycleConfig())
    made = pod("p", *(container(f"c{number}", part) for number, part in enumerate(parts)))
    passes = leaves_a_zone(node_info, made, {"cpu": wanted * 1000}, lambda _uid: False)
    if max(free) < wanted:
        assert passes
        return
    expected = [
        [
            zone - sum(part for part, at in zip(parts, chosen, strict=True) if at == number)
            for number, zone in enumerate(free)
        ]
        for chosen in product(range(len(free)), repeat=len(parts))
    ]
    possible = [zones for zones in expected if min(zones) >= 0]
    if passes:
        assert all(max(zones) >= wanted for zones in possible)
    elif len(parts) == 1 and possible:
        assert any(max(zones) < wanted for zones in possible)


def test_nominees_of_one_priority_and_node_do_not_wait_for_each_other() -> None:
    """kube-scheduler sends these requests for each of them."""
    history = History()
    history.node(allocatable={"cpu": 64_000, "pods": 110})
    history.report(zone(0, 8), tracked=("cpu",))
    node_info = NodeInfo("n1", 0)
    node_info.update_from(history.n1, CycleConfig())
    view = ClusterView({"n1": node_info}, PlacedPods(), Exclusions(), ClusterObjects())
    for name in ("one", "two"):
        nominations = NominationObserved(f"uid-{name}", f"ns/{name}", "n1", zonal={"cpu": 6000})
        view.cluster_objects.fold(nominations)
        if name == "one":
            assert list(zones_kept(pod("two", cpus=6), view)) == ["n1"], "before it is nominated"
    assert zones_kept(pod("two", cpus=6), view) == zones_kept(pod("one", cpus=6), view) == {}
    assert list(zones_kept(pod("third", cpus=6), view)) == ["n1"]
