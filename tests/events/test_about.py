"""Every event names its pod and node, has a handler of the ledger or a reason to have none, and, if
it is about a pod, a line in the pod's story.
"""

from __future__ import annotations

import re

import pytest

from services.replay import story
from shared.events import cluster_events as cluster
from shared.events import streams
from shared.events.about import About
from shared.events.catalog import CATALOG, Event
from shared.events.envelope import Envelope
from shared.events.log_events import LogOpened
from shared.events.report_events import NodeReported
from shared.ledger import fold
from shared.ledger.state import Ledger
from tests.events.samples import full

OF_A_POD_BY = {cluster.PodObserved: About("some-uid", "some-node")}
OF_A_NODE_BY = {
    cluster.NodeObserved: About(node="some-name"),
    cluster.NodeEnded: About(node="some-name"),
    NodeReported: About(node="some-node"),
    LogOpened: About(),
}


@pytest.mark.parametrize("name", sorted(CATALOG))
def test_every_event_declares_the_pod_and_the_node_that_it_is_about(name: str) -> None:
    struct = CATALOG[name].struct
    named = {field for field in struct.__struct_fields__ if field in ("uid", "node")}
    by_fields = About("some-uid" if "uid" in named else "", "some-node" if "node" in named else "")
    assert full(struct).about == (OF_A_POD_BY | OF_A_NODE_BY).get(struct, by_fields)


@pytest.mark.parametrize("name", sorted(CATALOG))
def test_every_event_has_a_handler_of_the_ledger_or_a_reason_to_have_none(name: str) -> None:
    struct = CATALOG[name].struct
    assert (struct in fold._HANDLERS) != (struct in fold._WHY_NOT), "both, or neither"
    if not fold.concerns(struct):
        ledger = Ledger()
        fold.evolve(ledger, Envelope(1, "s", 1, name, 1, b"", 0, "r", 0, "c"), full(struct))
        assert ledger == Ledger(position=1)


def test_an_event_without_a_decision_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(fold._HANDLERS, cluster.PodEnded)
    with pytest.raises(KeyError, match="PodEnded"):
        fold.concerns(cluster.PodEnded)


@pytest.mark.parametrize(
    "name", sorted(name for name, entry in CATALOG.items() if full(entry.struct).about.pod)
)
def test_every_event_about_a_pod_is_a_line_of_its_story(name: str) -> None:
    event: Event = full(CATALOG[name].struct)
    lines = story.lines_of(
        [(Envelope(1, "s", 1, name, 1, b"", 0, "r", 0, "c"), event)], event.about.pod
    )
    assert len(lines) == 1
    assert lines[0].title


@pytest.mark.parametrize("name", sorted(CATALOG))
def test_a_stream_in_an_event_docstring_is_of_a_known_kind(name: str) -> None:
    """Otherwise unreadable events there would be skipped as those of a newer release."""
    named = re.findall(r"[Ss]treams?\s+`([a-z]+(?:/|`))", CATALOG[name].struct.__doc__ or "")
    assert all(streams.is_known(stream.rstrip("`")) for stream in named), named
