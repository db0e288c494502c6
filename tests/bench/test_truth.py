"""Why a kubelet rejected a pod: another pod's end that the scheduler had not observed, another pod
that was admitted first, or neither.

There are two zones of 7 CPUs, and only zone 0 has a GPU. A pod takes the lowest zone in which it
fits.
"""

from __future__ import annotations

import msgspec
import pytest

from services.comparison.truth import AFTER_END, OVERTAKEN, UNEXPLAINED, TrueNode
from services.simulator.cluster import GPU, NodeShape, Policies, lay_out
from shared.domain.pod import Container, Pod

GIB = 1 << 30
DECIDED = (10.0, 5)
EARLIER, LATER = 4, 6
KNOWN_S, UNKNOWN_S = 9.0, 11.0


def pod(name: str, cpus: int, gpu: bool = False) -> Pod:
    asked = {"cpu": cpus * 1000, "memory": GIB, **({GPU: 1} if gpu else {})}
    return Pod(name, "ns", name, "Guaranteed", (Container("c", "app", asked, asked),))


@pytest.fixture
def node() -> TrueNode:
    return TrueNode(lay_out("n", NodeShape(2, 16, 64 * GIB, {GPU: 1}), Policies()))


def comes(node: TrueNode, name: str, cpus: int, order: int = 0) -> Pod:
    came = pod(name, cpus)
    node.assigned(came)
    node.begin(came.uid)
    assert node.conclude(came, 0.0, order).verdict.admitted
    return came


def test_an_end_that_was_not_reported_let_another_pod_into_the_zone(node: TrueNode) -> None:
    ended = comes(node, "ended", 3)
    node.end(ended, 0.0, UNKNOWN_S)
    comes(node, "other", 5, EARLIER)
    assert node.why_refused(pod("late", 4, gpu=True), DECIDED) == AFTER_END


def test_an_end_that_was_known_explains_nothing(node: TrueNode) -> None:
    ended = comes(node, "ended", 3)
    node.end(ended, 0.0, KNOWN_S)
    comes(node, "other", 5, EARLIER)
    assert node.why_refused(pod("late", 4, gpu=True), DECIDED) == UNEXPLAINED


def test_one_that_was_decided_later_came_earlier(node: TrueNode) -> None:
    comes(node, "other", 5, LATER)
    assert node.why_refused(pod("late", 4, gpu=True), DECIDED) == OVERTAKEN


def test_of_two_causes_that_each_sufficed_one_was_an_end(node: TrueNode) -> None:
    """The end sent `other` to zone 0; had it not, `later` would be there, which knew of the end."""
    ended = comes(node, "ended", 3)
    node.end(ended, 0.0, UNKNOWN_S)
    comes(node, "other", 5, EARLIER)
    comes(node, "later", 3, LATER)
    assert node.why_refused(pod("late", 4, gpu=True), DECIDED) == AFTER_END


def test_an_end_sufficed_next_to_one_that_another_decision_relied_on(node: TrueNode) -> None:
    """`later` was decided after the smaller end had been observed, which left room for both
    pods.
    """
    larger, smaller = comes(node, "larger", 2), comes(node, "smaller", 1)
    node.end(smaller, 0.0, UNKNOWN_S)
    node.end(larger, 0.0, UNKNOWN_S)
    comes(node, "other", 5, EARLIER)
    comes(node, "later", 1, LATER)
    assert node.why_refused(pod("late", 4, gpu=True), DECIDED) == AFTER_END


def test_an_end_excuses_no_pod_that_was_overtaken_anyway(node: TrueNode) -> None:
    """The end was in the other zone."""
    comes(node, "filler", 7)
    ended = comes(node, "ended", 3)
    node.end(node.past[0].pod, 0.0, KNOWN_S)
    node.end(ended, 0.0, UNKNOWN_S)
    comes(node, "other", 5, LATER)
    assert node.why_refused(pod("late", 4, gpu=True), DECIDED) == OVERTAKEN


def test_an_agent_refuses_cpus_of_another_pod_and_nothing_explains_it() -> None:
    shape = NodeShape(2, 16, 64 * GIB, {GPU: 1})
    node = TrueNode(lay_out("n", shape, Policies(owner="topolog")))
    bound = node.as_bound(pod("bound", 4))
    assert bound is not None
    twin = msgspec.structs.replace(bound, uid="twin", name="twin")
    for listed in (bound, twin):
        node.assigned(listed)
        node.begin(listed.uid)
        verdict = node.conclude(listed, 0.0).verdict
    assert not verdict.admitted
    assert "belong to pod ns/bound" in verdict.message
    assert node.why_refused(twin, DECIDED) == UNEXPLAINED
    assert [mask.bit_count() for mask in node.zones_of(bound)] == [1]
    node.end(bound, 0.0, KNOWN_S)
    assert node.zones_of(bound) == []
