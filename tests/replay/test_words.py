"""Sentences for people: every event has one, zones are listed, pods are named and never by uid."""

from __future__ import annotations

import pytest

from services.replay.moments import At, Back, When, parse
from services.replay.words import by_container, sentence_of
from shared.events.catalog import CATALOG
from shared.events.cluster_events import PodObserved
from tests.events.samples import full, minimal
from tests.ledger.given import pod

NOW_US = 1_700_000_000_000_000


@pytest.mark.parametrize("name", sorted(CATALOG))
def test_every_event_has_a_sentence_in_plain_words(name: str) -> None:
    struct = CATALOG[name].struct
    for event in (full(struct), minimal(struct)):
        text = sentence_of(event, {}).text
        assert text
        assert "{" not in text
        assert "None" not in text
        assert "(0," not in text


def test_zones_are_listed_as_people_write_them() -> None:
    assert by_container({"a": (1,), "b": (1,)}) == "zone 1"
    assert by_container({"train": (1,), "feed": (0,)}) == "feed on zone 0, train on zone 1"
    assert by_container({"": (0, 1, 3)}) == "zones 0, 1 and 3"


def test_the_node_and_scheduler_of_a_pod_are_shown_whatever_bound_it() -> None:
    """A person may have bound a pod of Topolog: the event does not name the writer."""
    assert sentence_of(PodObserved(pod("a", cpus=2), node="n1"), {}).text.startswith(
        "seen on n1 (schedulerName topolog); requests"
    )


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("500", At(500)),
        ("head", Back()),
        ("-100", Back(100)),
        ("head-7", Back(7)),
        ("10m ago", When(NOW_US - 600_000_000)),
        ("2 hours ago", When(NOW_US - 7_200_000_000)),
        ("1700000000", When(NOW_US)),
        ("2023-11-14T22:13:20", When(NOW_US)),
        ("2023-11-14T23:13:20+01:00", When(NOW_US)),
    ],
)
def test_moments(text: str, moment: object) -> None:
    assert parse(text, NOW_US) == moment
