"""A pod that ended only because a list lacked it keeps what the node's reports still list for
it.
"""

from __future__ import annotations

import json

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from shared.domain.pod import Pod
from shared.domain.report import Placement
from shared.domain.resources import PODS
from shared.events import streams
from shared.events.cluster_events import PodEnded
from shared.events.report_events import NodeReportChanged, NodeReportExpired
from shared.ledger.promises import promises
from shared.ledger.view import compute_free_max, compute_free_min
from tests.fixtures.examples import examples
from tests.ledger.given import History, held, pod, zone

RUNNING = pod("a", cpus=8)


def running_pod() -> History:
    """Return a history with a pod of 8 CPUs, confirmed in zone 0 of two zones of 8."""
    history = History()
    history.report(zone(0, 8), zone(1, 8))
    history.reserve(RUNNING)
    list_it(history, at=2)
    assert history.charge(RUNNING).confirmed
    return history


def list_it(history: History, at: int, uid: str = "") -> int:
    placements = (held("a", 0, 8, uid=uid),)
    return history.report(zone(0, 8, 0), zone(1, 8), at=at, placements=placements)


def absent(history: History, made: Pod = RUNNING) -> int:
    event = PodEnded(made.uid, "absent_from_list", "n1")
    return history.tell(streams.pod(made.uid), event)


def charged(history: History) -> tuple[int, int, int]:
    """Return the guaranteed free CPUs of zone 0, the requested millicpu, and the requested pods."""
    requested = history.n1.requested
    return history.free(0), requested.get("cpu", 0), requested.get(PODS, 0)


def test_a_listed_pod_keeps_its_charge_when_a_list_lacks_it() -> None:
    history = running_pod()
    absent(history)
    assert charged(history) == (0, 8000, 1)
    assert history.at_best(0) == 8, "it may have ended all the same"


@pytest.mark.parametrize("uid", ["", RUNNING.uid])
def test_a_newer_report_brings_the_charge_back(uid: str) -> None:
    history = History()
    history.report(zone(0, 8), zone(1, 8))
    history.reserve(RUNNING)
    absent(history)
    assert charged(history) == (8, 0, 0)
    list_it(history, at=2, uid=uid)
    assert charged(history) == (0, 8000, 1)


def test_a_report_without_the_pod_ends_it() -> None:
    history = running_pod()
    absent(history)
    list_it(history, at=3)
    assert charged(history) == (0, 8000, 1)
    history.report(zone(0, 8), zone(1, 8), at=4)
    assert charged(history) == (8, 0, 0)


def test_a_delta_that_no_longer_lists_the_pod_ends_it() -> None:
    history = running_pod()
    absent(history)
    change = NodeReportChanged("n1", "boot-1", 3, available={0: {"cpu": 8000}}, unlisted=("ns/a",))
    history.tell(streams.report("n1"), change)
    assert charged(history) == (8, 0, 0)


def test_the_observed_end_of_an_absent_pod_frees_it() -> None:
    history = running_pod()
    absent(history)
    history.tell(streams.pod(RUNNING.uid), PodEnded(RUNNING.uid, "deleted", "n1"))
    assert charged(history) == (8, 0, 0)


def test_an_absent_pod_that_is_seen_again_is_the_same_pod() -> None:
    history = running_pod()
    absent(history)
    history.seen(RUNNING, node="n1", phase="Running")
    assert history.charge(RUNNING).confirmed
    assert charged(history) == (0, 8000, 1)


def test_the_listing_of_another_uid_is_no_evidence_for_the_absent_pod() -> None:
    history = running_pod()
    absent(history)
    list_it(history, at=3, uid="uid-other")
    assert history.n1.requested.get(PODS, 0) == 0


def test_an_absent_pod_is_no_promise() -> None:
    """The release before frees it at once: both must come to the same mark of a history."""
    history, live_pod = running_pod(), pod("b", cpus=2)
    history.reserve(live_pod)
    absent(history)
    node = json.loads(next(promises(history.ledger)))[1]
    assert history.n1.requested[PODS] == 2
    assert (node["requested"][PODS], node["requested"]["cpu"]) == (1, 2000)
    assert list(node["charges"]) == [live_pod.uid]


def test_silence_frees_nothing() -> None:
    history = running_pod()
    absent(history)
    history.tell(streams.report("n1"), NodeReportExpired("n1", 60))
    assert charged(history) == (0, 8000, 1)


def test_a_namesake_takes_the_listing_over() -> None:
    """A StatefulSet's next pod of the name: the old one's request counts until it is listed."""
    history = running_pod()
    absent(history)
    successor = pod("a", cpus=8, uid="uid-next")
    history.reserve(successor)
    assert history.n1.requested[PODS] == 2
    history.report(zone(0, 8), zone(1, 8, 0), at=3, placements=(held("a", 1, 8, uid="uid-next"),))
    assert history.charge(successor).confirmed
    assert (history.free(0), history.n1.requested[PODS]) == (8, 1)


@st.composite
def lists_reports_and_silence(draw: st.DrawFn) -> History:
    """Any order of lists that lack pods, lists that show them, reports that list all of them, and
    silence: the kubelet runs both pods all the time."""
    history, pods = History(), (RUNNING, pod("b", cpus=4))
    placements: tuple[Placement, ...] = (held("a", 0, 8), held("b", 1, 4))
    history.report(zone(0, 8), zone(1, 8))
    for made in pods:
        history.reserve(made)
    history.report(zone(0, 8, 0), zone(1, 8, 4), at=2, placements=placements)
    for step in range(draw(st.integers(1, 12))):
        made = draw(st.sampled_from(pods))
        match draw(st.sampled_from(("absent", "seen", "report", "delta", "silence"))):
            case "absent":
                absent(history, made)
            case "seen":
                history.seen(made, node="n1", phase="Running")
            case "report":
                history.report(zone(0, 8, 0), zone(1, 8, 4), at=step + 3, placements=placements)
            case "delta":
                history.tell(
                    streams.report("n1"), NodeReportChanged("n1", "boot-1", 3, listed=placements)
                )
            case "silence":
                history.tell(streams.report("n1"), NodeReportExpired("n1", 60))
    return history


@given(lists_reports_and_silence())
@settings(max_examples=examples(150), deadline=None)
def test_no_list_report_or_silence_frees_what_reports_contradict(history: History) -> None:
    assert (history.free(0), history.free(1)) == (0, 4)
    assert (history.n1.requested["cpu"], history.n1.requested[PODS]) == (12000, 2)
    assert history.n1.free_min == compute_free_min(history.n1)
    assert history.n1.free_max == compute_free_max(history.n1)
