"""A refusal in words: amounts with units, zones, the pods that hold them, and a remedy."""

from __future__ import annotations

import msgspec

from services.replay.near_miss import near_miss
from services.replay.story import lines_of
from shared.domain.refusal import Reason, Refusal, ZoneState
from shared.events.codec import encode, type_of
from shared.events.envelope import Envelope
from shared.events.scheduling_events import PodVerdictChanged

GIB = 2**30


def lines(made: Refusal, **names: str) -> list[str]:
    return near_miss(msgspec.to_builtins(made), names)


def test_cpus_and_memory_are_shown_in_kubernetes_units() -> None:
    zones = (ZoneState(0, 1500, 4000, 16000, ("u1", "u2")), ZoneState(1, 6000, 6000, 16000))
    cpu = Refusal(
        "n17",
        Reason.NO_SINGLE_ZONE,
        resource="cpu",
        container="main",
        asked=8000,
        best=6000,
        best_zone=1,
        zones=zones,
    )
    assert lines(cpu, u1="ns/web", u2="ns/db") == [
        (
            "near miss n17: no single zone, container main, requests cpu 8, zone 1 has 6 "
            "guaranteed free"
        ),
        "  zone 0: cpu 1500m of 16 guaranteed free, 4 free at most; held by ns/web, ns/db",
        "  zone 1: cpu 6 of 16 guaranteed free",
    ]
    memory = Refusal(
        "n1",
        Reason.NODE_RESOURCE,
        resource="memory",
        asked=2 * GIB,
        best=GIB // 2,
        remedy="ask for less",
    )
    assert lines(memory) == [
        (
            "near miss n1: too little on the node, requests memory 2Gi, the node has 512Mi "
            "guaranteed free"
        ),
        "  would fit: ask for less",
    ]


def test_rule_and_subject_are_named() -> None:
    refusal = Refusal(
        "n1",
        Reason.TAINT,
        "gpu=yes:NoSchedule",
        policy="restricted",
        scope="pod",
        policy_source="label",
    )
    assert lines(refusal) == [
        "near miss n1: untolerated taint, gpu=yes:NoSchedule, policy restricted/pod by label"
    ]


def test_many_holders_are_counted_and_unknown_ones_shown_by_uid() -> None:
    zones = (
        ZoneState(0, 0, 0, 8000, tuple("abcdefgh")),
        ZoneState(1, 0, 0, 8000, tuple("abcde"), more_holders=3),
    )
    refusal = Refusal("n1", Reason.NO_SINGLE_ZONE, resource="cpu", asked=1, zones=zones)
    for zone, line in enumerate(lines(refusal)[1:]):
        expected = "cpu 0 of 8 guaranteed free; held by a, b, c, d, e and 3 more"
        assert line == f"  zone {zone}: {expected}"


def test_a_reason_that_only_another_release_knows_is_shown() -> None:
    refusal = {"node": "n1", "reason": "a reason of the future", "asked": 0, "holders": []}
    assert near_miss(refusal, {}) == ["near miss n1: a reason of the future"]


def test_a_refusal_in_the_form_of_another_release_is_shown_as_it_is() -> None:
    refusal: dict[str, object] = {"node": "n1", "reason": "short", "asked": "much"}
    assert near_miss(refusal, {}) == ["near miss: node n1, reason short, asked much"]


def test_a_story_shows_counts_first_then_near_misses() -> None:
    detail = (msgspec.to_builtins(Refusal("n1", Reason.NOT_READY)),)
    event = PodVerdictChanged("u", "0/3 nodes", {"too many pods": 1, "node not ready": 2}, detail)
    (line,) = lines_of(
        [(Envelope(1, "pod/u", 1, type_of(event), 1, encode(event), 0, "t", 0, "c"), event)], "u"
    )
    assert line.title == "waits: 0/3 nodes"
    assert line.detail == (
        "2 node not ready",
        "1 too many pods",
        "near miss n1: node not ready",
    )
