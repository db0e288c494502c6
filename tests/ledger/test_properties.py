"""Whatever is told in whatever order: bounds kept incrementally equal those computed anew, and no pods means no charges."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given, settings

from shared.domain.pod import Pod
from shared.domain.report import Placement
from shared.events import streams
from shared.events.cluster_facts import NodeEnded
from shared.events.report_facts import NodeReportExpired
from shared.ledger.digest import digest, from_snapshot, to_snapshot
from shared.ledger.view import lower_bound, upper_bound
from tests.fixtures.examples import examples
from tests.ledger.given import History, container, held, listed_empty, pod, zone

NAMES = ("a", "b", "c")


@st.composite
def placements(draw: st.DrawFn) -> tuple[Placement, ...] | None:
    if draw(st.integers(0, 9)) == 0:
        return None
    found = []
    for name in draw(st.lists(st.sampled_from(NAMES), unique=True)):
        cpus = draw(st.integers(0, 4))
        found.append(held(name, draw(st.integers(0, 2)), cpus, draw(st.integers(0, 1))) if cpus else listed_empty(name))
    return tuple(found)


@st.composite
def histories(draw: st.DrawFn) -> History:
    history, live = History(), dict[str, Pod]()
    for step in range(draw(st.integers(1, 14))):
        match draw(st.sampled_from(["report", "report", "reserve", "reserve", "end", "node", "silence", "gone"])):
            case "report":
                zones = [zone(z, 8, draw(st.integers(0, 8)), 2, draw(st.integers(0, 2))) for z in range(draw(st.integers(1, 3)))]
                policy = draw(st.sampled_from(["single-numa-node", "single-numa-node", "restricted"]))
                scope = draw(st.sampled_from(["container", "pod"]))
                boot = draw(st.sampled_from(["boot-1", "boot-1", "boot-2"]))
                history.report(*zones, at=step, boot=boot, placements=draw(placements()), policy=policy, scope=scope)
            case "reserve":
                name = draw(st.sampled_from(NAMES))
                parts = [container("c", draw(st.integers(0, 6)), draw(st.integers(0, 1)))]
                if draw(st.booleans()):
                    parts.insert(0, container("i", draw(st.integers(1, 4)), kind="init"))
                made = pod(name, *parts, uid=f"uid-{step}")
                live[made.uid] = made
                history.reserve(made)
            case "end" if live:
                history.end(live.pop(draw(st.sampled_from(sorted(live)))))
            case "node":
                history.node(uid=draw(st.sampled_from(["u1", "u1", "u2"])))
                live = {uid: made for uid, made in live.items() if uid in history.ledger.pods}
            case "silence" if "n1" in history.ledger.nodes:
                history.tell(streams.report("n1"), NodeReportExpired("n1", 60))
            case "gone":
                history.tell(streams.node("n1"), NodeEnded("n1", draw(st.sampled_from(["u1", "u2"])), "deleted"))
    return history


@given(histories())
@settings(max_examples=examples(120), deadline=None)
def test_bounds_kept_incrementally_equal_bounds_computed_anew(history: History) -> None:
    for node in history.ledger.nodes.values():
        assert node.lower == lower_bound(node)
        assert node.upper == upper_bound(node)


@given(histories())
@settings(max_examples=examples(60), deadline=None)
def test_a_ledger_without_pods_carries_no_charge(history: History) -> None:
    for entry in list(history.ledger.pods.values()):
        history.end(entry.pod)
    for node in history.ledger.nodes.values():
        assert node.charges == {}
        assert all(amount == 0 for amount in node.requested.values())


@given(histories())
@settings(max_examples=examples(30), deadline=None)
def test_a_snapshot_is_the_state(history: History) -> None:
    again = from_snapshot(to_snapshot(history.ledger))
    assert digest(again) == digest(history.ledger)
