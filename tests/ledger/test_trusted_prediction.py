"""A trusted prediction narrows a charge to its zones until an event shows otherwise, and only if
that is configured.
"""

from __future__ import annotations

from shared.domain.pod import Pod
from shared.events import streams
from shared.events.scheduling_events import NodeCharged, PodReserved
from shared.ledger.view import compute_free_min
from tests.ledger.given import History, container, held, listed_empty, pod, zone
from tests.scheduler.default.story import Story

A = pod("a", cpus=6)


def trusting(made: Pod = A, scope: str = "container", **zones: tuple[int, ...]) -> History:
    """Return a history with two empty zones of 8 CPUs, in which the pod is charged in its predicted
    zones.
    """
    history = History()
    history.report(zone(0, 8), zone(1, 8), scope=scope)
    history.seen(made)
    history.tell(streams.pod(made.uid), PodReserved(made.uid, "n1", predicted=zones))
    history.tell(streams.node("n1"), NodeCharged("n1", made.uid, narrowed=zones))
    assert history.n1.free_min == compute_free_min(history.n1)
    return history


def test_a_trusted_prediction_leaves_the_other_zone_free() -> None:
    history = trusting(c=(0,))
    assert (history.free(0), history.free(1)) == (2, 8)


def test_without_it_every_possible_zone_is_charged() -> None:
    history = trusting()
    assert (history.free(0), history.free(1)) == (2, 2)


def test_in_pod_scope_the_pod_is_narrowed_to_the_zones_of_its_containers() -> None:
    pod_spec = pod("a", container("c1", 2), container("c2", 3))
    history = trusting(pod_spec, "pod", c1=(1,), c2=(1,))
    assert (history.free(0), history.free(1)) == (8, 3)


def test_a_prediction_that_leaves_a_container_out_narrows_nothing() -> None:
    pod_spec = pod("a", container("c1", 2), container("c2", 3))
    history = trusting(pod_spec, c1=(1,))
    assert (history.free(0), history.free(1)) == (3, 3)


def test_a_prediction_of_an_impossible_zone_narrows_nothing() -> None:
    history = trusting(c=(7,))
    assert (history.free(0), history.free(1)) == (2, 2)


def test_a_narrowed_charge_stays_while_reports_do_not_list_the_pod() -> None:
    history = trusting(c=(0,))
    history.report(zone(0, 8), zone(1, 8), at=2, placements=(listed_empty("a"),))
    assert (history.free(0), history.free(1)) == (2, 8)


def test_a_half_admitted_pod_in_another_zone_ends_the_trust() -> None:
    pod_spec = pod("a", container("c", 6, memory=2**30))
    history = trusting(pod_spec, c=(0,))
    history.report(zone(0, 8), zone(1, 8, 2), at=2, placements=(held("a", 1, 6),))
    assert history.charge(pod_spec).possible == {"c": (0, 1)}


def test_a_reboot_ends_the_trust() -> None:
    history = trusting(c=(0,))
    history.report(zone(0, 8), zone(1, 8), boot="boot-2")
    assert (history.free(0), history.free(1)) == (2, 2)


async def test_the_scheduler_narrows_only_if_predictions_are_trusted() -> None:
    for prediction, freely in (("observe", 2000), ("trust", 8000)):
        story = Story(prediction=prediction)
        await story.node()
        await story.report(zone(0, 8), zone(1, 8))
        await story.arrives(A)
        await story.decide()
        assert max(free["cpu"] for free in story.ledger_node().free_min.values()) == freely
        node_info = story.cores[0].cluster.node("n1")  # type: ignore[attr-defined]
        assert node_info is not None
        assert node_info.free_min == story.ledger_node().free_min
