"""The past in words: where a charged pod is, or may be."""

from __future__ import annotations

from services.cli.replay_print import _charge
from services.replay.state_at import node_state, state_at
from services.top.model import charge_in_words
from shared.events import streams
from shared.events.cluster_events import PodObserved
from tests.ledger.given import History, held, pod, zone
from tests.scheduler.default.story import Story


def words(history: History) -> str:
    return _charge(node_state(history.ledger, history.ledger.nodes["n1"])["charges"][0])


def test_a_pod_that_is_listed_no_more_may_still_hold_what_it_held() -> None:
    history, one = History(), pod("a", cpus=4)
    history.report(zone(0, 8), zone(1, 8))
    history.reserve(one)
    assert words(history).startswith("ns/a  not proven: could be on zones 0 and 1")
    history.report(zone(0, 8, 4), zone(1, 8), at=2, placements=(held("a", 0, 4),))
    assert words(history).startswith("ns/a  proven on zone 0: cpu 4 (")
    history.report(zone(0, 8), zone(1, 8), at=3)
    assert words(history).startswith(
        "ns/a  listed no more, and no word of its end: may still hold zone 0: cpu 4 ("
    )
    assert (
        charge_in_words(history.charge(one), None)
        == "listed no more, and no word of its end: may still hold zone 0: cpu 4"
    )


async def test_a_pod_that_is_being_deleted_waits_for_no_node() -> None:
    """A finalizer may hold it for days."""
    story = Story()
    await story.arrives(pod("a"), pod("b"))
    await story.tell(streams.pod("uid-a"), PodObserved(pod("a"), terminating=True))
    assert (await state_at(story.log, "head", ""))["waiting"] == ["ns/b"]
