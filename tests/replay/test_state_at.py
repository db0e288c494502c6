"""The past in words: the zones of a charged pod, confirmed or possible."""

from __future__ import annotations

from services.cli.replay_print import _charge
from services.replay.state_at import node_state
from services.replay.zone_amounts import resources_in
from services.scheduler.state.totals import zones_in_use
from services.top.model import node_row
from shared.events import streams
from shared.events.cluster_events import PodObserved
from shared.kubelet.fingerprint import fingerprint
from tests.ledger.given import GIB, History, container, held, pod, zone
from tests.ledger.test_fingerprint_path import reconcile
from tests.replay.whole_state import whole_state
from tests.scheduler.default.story import Story
from tests.scheduler.owned.given import OwnedWorld, exclusive


def words(history: History) -> str:
    return _charge(node_state(history.ledger, history.ledger.nodes["n1"])["charges"][0])


def test_a_pod_that_is_listed_no_more_may_still_hold_what_it_held() -> None:
    history, listed_pod = History(), pod("a", cpus=4)
    history.report(zone(0, 8), zone(1, 8))
    history.reserve(listed_pod)
    assert words(history).startswith("ns/a  unconfirmed: may be on zones 0 and 1")
    history.report(zone(0, 8, 4), zone(1, 8), at=2, placements=(held("a", 0, 4),))
    assert words(history).startswith("ns/a  confirmed on zone 0: cpu 4 (")
    history.report(zone(0, 8), zone(1, 8), at=3)
    assert words(history).startswith(
        "ns/a  no longer listed, end not reported: may still hold zone 0: cpu 4 ("
    )


async def test_a_pod_that_is_being_deleted_waits_for_no_node() -> None:
    """A finalizer may keep the pod for days."""
    story = Story()
    await story.arrives(pod("a"), pod("b"))
    await story.tell(streams.pod("uid-a"), PodObserved(pod("a"), terminating=True))
    assert (await whole_state(story.log, "head", ""))["waiting"] == ["ns/b"]


async def test_a_pod_confirmed_by_fingerprint_shows_what_it_holds_and_no_zone() -> None:
    """It once showed "confirmed to hold no zone" for a pod that held 8 CPUs."""
    history, web = History(), pod("a", container("c", 6))
    history.report(zone(0, 8), zone(1, 8), placements=None, fingerprint=fingerprint([]))
    history.reserve(web)
    names = fingerprint([("ns", "a")])
    history.report(zone(0, 8, 2), zone(1, 8), at=2, placements=None, fingerprint=names)
    reconcile(history)
    assert words(history).startswith(
        "ns/a  confirmed by fingerprint: cpu 6 in use, zone not reported"
    )


def test_a_pod_on_a_node_of_koordlet_shows_what_no_report_lists() -> None:
    history = History()
    history.reserve(pod("a", container("c", 4, memory=GIB)))
    listing = (held("a", 0, 4, container_name=""),)
    fields = {"exporter": "koordlet", "source": "nrt", "unlisted": ("memory",)}
    history.report(zone(0, 8, 4), zone(1, 8), placements=listing, **fields)
    assert "; memory 1Gi counted in zone 0, which no report lists" in words(history)
    assert node_state(history.ledger, history.n1)["confirmed_by"] == "koordlet's pod-cpu-allocs"


def test_it_says_who_chooses_the_zones() -> None:
    history = History()
    history.node()
    history.report(zone(0, 4), cpu_policy="static")
    assert node_state(history.ledger, history.n1)["chosen_by"] == (
        "cpu: kubelet, memory: unknown, devices: kubelet (cpuManagerPolicy is static)"
    )


def test_a_node_of_topolog_shows_what_its_zones_have_left_and_what_each_pod_got() -> None:
    """A pod of another scheduler may be in either zone, so it counts for the guaranteed free
    amounts of both.
    """
    world = OwnedWorld()
    world.node()
    world.place(exclusive("p", 4, 8))
    world.seen(exclusive("other", 2, 1, scheduler_name="default-scheduler"), "n1")
    ledger = world.core.ledger
    node = ledger.nodes["n1"]
    shown = node_state(ledger, node)
    cpus = [zone["resources"]["cpu"] for zone in shown["zones"]]
    assert cpus == [
        {"allocatable": 15_000, "free_min": 9_000, "free_max": 11_000},
        {"allocatable": 15_000, "free_min": 13_000, "free_max": 15_000},
    ]
    assert [(charge["text"], charge["state"]) for charge in shown["charges"]] == [
        ("allocated cpu 4, memory 8Gi of zone 0, CPUs 2-5 for itself", "allocated"),
        ("unconfirmed: may be in every zone", "may be in every zone"),
    ]
    assert resources_in(node) == {"cpu", "memory"}
    assert zones_in_use(node) == 1
    assert [(bar.used, bar.charged, bar.free) for bar in node_row(node, "cpu").bars] == [
        (4_000, 2_000, 9_000),
        (0, 2_000, 13_000),
    ]
