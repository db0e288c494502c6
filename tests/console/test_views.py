"""What the views show of a folded log."""

from __future__ import annotations

import pytest

from services.console import views
from services.console.views import NO_GROUP
from services.replay import shapes
from services.replay.deciding_state import followed_at
from services.replay.filters import FilterError
from services.scheduler.state.state import SchedulerState
from tests.console.served import small_cluster
from tests.ledger.given import held, zone


@pytest.fixture
async def state() -> SchedulerState:
    log = (await small_cluster()).log
    return (await followed_at(log, await log.head()))[0]


async def test_the_map_shows_used_charged_and_free_of_each_zone(state: SchedulerState) -> None:
    cells = views.map_of(state.ledger, "cpu", {"cpu": 3000}, "")
    by_charge = sorted(
        (zone.charged, zone.free, zone.fits) for cell in cells for zone in cell.zones
    )
    # The placed pod may land in either zone of its node; both keep 2 guaranteed CPUs.
    assert by_charge == [(0, 6000, 2), (0, 6000, 2), (4000, 2000, 0), (4000, 2000, 0)]
    assert {cell.pods for cell in cells} == {0, 1}


async def test_without_a_shape_nothing_is_counted(state: SchedulerState) -> None:
    cells = views.map_of(state.ledger, "cpu", {}, "")
    assert {zone.fits for cell in cells for zone in cell.zones} == {-1}


async def test_nodes_without_the_label_are_a_group_of_their_own(state: SchedulerState) -> None:
    assert {cell.group for cell in views.map_of(state.ledger, "cpu", {}, "rack")} == {NO_GROUP}


async def test_waiting_pods_come_first_with_their_reason(state: SchedulerState) -> None:
    large, placed = views.pods_of(state.ledger, "", "")
    assert (large.pod, large.stage, large.zone_wait) == ("ns/large", "pending", "cpu")
    assert large.reason.startswith("0/2 nodes are available")
    assert (placed.stage, placed.charged, placed.is_confirmed) == ("reserved", (0, 1), False)
    assert placed.placement == "unconfirmed: may be on zones 0 and 1, predicted on zone 0"
    assert [pod.pod for pod in views.pods_of(state.ledger, "reserved", "")] == ["ns/placed"]
    assert [pod.pod for pod in views.pods_of(state.ledger, "", "larg")] == ["ns/large"]


async def test_a_confirmed_pod_is_in_the_zones_of_its_report() -> None:
    story = await small_cluster()
    zones = zone(0, 6), zone(1, 6, free=2)
    await story.report(*zones, node="n1", at=2, placements=(held("placed", 1, 4),))
    ledger = (await followed_at(story.log, await story.log.head()))[0].ledger
    (placed,) = views.pods_of(ledger, "", "placed")
    assert (placed.charged, placed.is_confirmed) == ((1,), True)
    assert placed.placement.startswith("confirmed on zone 1: cpu 4")


async def test_counts_are_of_what_needs_a_look(state: SchedulerState) -> None:
    counts = views.counts_of(state)
    assert (counts.nodes, counts.pods, counts.waiting, counts.waiting_for_zone) == (2, 2, 1, 1)
    assert counts.unconfirmed == 1


def test_a_shape_is_amounts_by_resource() -> None:
    assert shapes.shape_of(" cpu=4, memory=8Gi ") == {"cpu": 4000, "memory": 8 << 30}
    assert shapes.shape_of("") == {}


@pytest.mark.parametrize("text", ["cpu", "cpu=", "cpu=x", "=4", "cpu=0", "cpu=-1"])
def test_a_wrong_shape_is_named(text: str) -> None:
    with pytest.raises(FilterError, match="shape"):
        shapes.shape_of(text)
