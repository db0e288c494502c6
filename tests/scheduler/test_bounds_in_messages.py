"""Undecided parts are named in one line, too: in the verdict that becomes a Kubernetes Event, by
the extender, in shadow mode. Verdicts of logs from older code, without names, stay the same.
"""

from __future__ import annotations

import msgspec
import pytest

from services.replay.recomputing import Deciding, recomputed
from services.scheduler.core import CoreConfig, SchedulerCore
from services.scheduler.explain.shadow import Shadow
from services.scheduler.explain.undecided import NAMES, of_pod
from services.scheduler.explain.wording import (
    MOST_NAMES,
    headline,
    with_remarks,
    without_notes,
)
from services.scheduler.extender.verbs import Texts, filtered, placed_on
from services.scheduler.snapshot.config import CycleConfig, Provenance
from services.scheduler.snapshot.result import Unplaceable
from shared.events.cluster_events import PodEnded, PodObserved
from shared.events.codec import decode
from shared.events.scheduling_events import PodVerdictChanged
from shared.hints import registry
from tests.hints.licences import LICENCE, Licences
from tests.kubelet.machines import container, guaranteed
from tests.ledger.given import held, pod, zone
from tests.scheduler.cycle_worlds import World, amounts, report
from tests.scheduler.cycle_worlds import container as container_of
from tests.scheduler.cycle_worlds import guaranteed as guaranteed_of
from tests.scheduler.cycle_worlds import zone as zone_of
from tests.scheduler.default.story import Story
from tests.scheduler.kubelet_worlds import NODE
from tests.scheduler.test_known_within import SCENES, other_version, unhealthy

HERE = Provenance("config-1", "code-1")
VERSION = "undecided: another kubelet version"


@pytest.mark.parametrize("name", SCENES)
def test_one_line_has_the_names_and_what_nodes_are_counted_by_has_not(name: str) -> None:
    world, asking = SCENES[name][0]()
    refusal, refused = world.cluster.verdict(asking, NODE), world.cluster.place(asking)
    assert refusal is not None
    assert isinstance(refused, Unplaceable)
    bounds = of_pod(world.cluster, asking, NODE)
    assert f"undecided: {', '.join(bounds)})" in refused.message
    assert without_notes(refused.message).startswith(
        f"0/1 nodes are available: 1 {headline(refusal)}"
    )
    assert "undecided" not in without_notes(refused.message)
    assert refused.counts == {headline(refusal): 1}


@pytest.mark.parametrize("name", SCENES)
def test_so_has_the_extenders_text_of_a_node_for_any_pod(name: str) -> None:
    world, asking = SCENES[name][0]()
    undecided = f"undecided: {', '.join(of_pod(world.cluster, asking, NODE))})"
    outcome = filtered(world.cluster, asking, [NODE], Texts())
    assert undecided in outcome.failed.get(NODE, outcome.unresolvable.get(NODE, ""))
    assert undecided in str(placed_on(world.cluster, asking, NODE))


def test_only_nodes_that_may_have_room_are_shown_with_bounds() -> None:
    """The versions of both kubelets are unknown. One node has too little under the rules of any
    version.
    """
    world, asking = other_version()
    world.node("small")
    world.observe("small", kubelet_version="v1.37.0")
    refused = world.cluster.place(asking)
    assert isinstance(refused, Unplaceable)
    assert refused.message.count("undecided") == 1
    assert (
        f"1 node(s) had no set of NUMA zones for the pod (containers c0, c1) ({VERSION})"
        in refused.message
    )
    more = guaranteed("q", container("c", 40))
    assert "undecided" not in str(world.cluster.place(more))


def test_amounts_that_prove_nothing_give_no_certainty(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The report shows one licence; there are one or two, and the pod asks for two."""
    monkeypatch.setattr(registry, "PROVIDERS", (*registry.PROVIDERS, Licences(left=(1, 2))))
    world, whole = World(), amounts(cpu=8, **{LICENCE: 1})
    world.observe("n", allocatable={"cpu": 16_000, "memory": 1 << 40, "pods": 110, LICENCE: 8})
    world.report(report("n", (zone_of(0, whole), zone_of(1, whole)), tracked=("cpu", LICENCE)))
    refused = world.cluster.place(
        guaranteed_of("p", container_of("c", amounts(cpu=1, **{LICENCE: 2})))
    )
    assert isinstance(refused, Unplaceable)
    assert refused.message.endswith("undecided: licences).")


def test_the_line_stays_short_and_is_what_it_was_without_them() -> None:
    assert with_remarks("text", "", ()) == "text"
    assert with_remarks("text", "best: 6", ()) == "text (best: 6)"
    names = sorted(NAMES)
    few = with_remarks("text", "best: 6", names)
    assert few == (
        f"text (best: 6; undecided: {', '.join(names[:MOST_NAMES])} and "
        f"{len(names) - MOST_NAMES} more)"
    )
    line = f"0/9 nodes are available: 7 {few}, 2 {with_remarks('other', '', names[:2])}."
    assert without_notes(line) == "0/9 nodes are available: 7 text (best: 6), 2 other."
    assert (
        without_notes("0/9 nodes are available: 7 text (best: 6), 2 other.")
        == "0/9 nodes are available: 7 text (best: 6), 2 other."
    )
    assert not any(mark in name for name in names for mark in "();"), "they are found between these"


def test_shadow_mode_says_so_of_what_it_would_have_refused() -> None:
    world, asking = unhealthy()
    shadow = Shadow()
    shadow.before(PodObserved(asking, node=NODE), world.ledger, world.cluster)
    shadow.after(PodEnded(asking.uid, "succeeded"))
    (case,) = shadow.take()
    assert case.judged.refused.endswith(" (undecided: unhealthy devices)")


# -- logs
# --------------------------------------------------------------------------------------------------


async def on_another_version() -> tuple[Story, str]:
    """Return the outcome of the second of two pods, of which the node has room for one."""
    story = Story()
    story.cores = [SchedulerCore(CoreConfig(provenance=HERE))]
    await story.node("n0", kubelet_version="v1.37.0")
    await story.report(zone(0, 8), node="n0")
    first, second = pod("a", cpus=6), pod("b", cpus=6)
    await story.arrives(first, second)
    await story.decide()
    (message,) = await story.verdicts(second)
    return story, message


async def test_a_verdict_says_it_once_and_is_not_repeated_while_it_holds() -> None:
    story, message = await on_another_version()
    assert message == (
        f"0/1 nodes are available: 1 node(s) had no NUMA zone with 6 "
        f"free cpu (best: 2 on n0/zone 0; {VERSION})."
    )
    for version in (2, 3, 4):
        await story.report(zone(0, 8), node="n0", at=version)
        await story.decide()
    assert len(await story.verdicts(pod("b"))) == 1
    await story.report(zone(0, 8, 2), node="n0", at=5, placements=(held("a", 0, 6),))
    story.cores[0].look()
    columns = story.cores[0].cluster.columns
    assert columns is not None
    decided = columns.place(pod("b", cpus=6))
    assert isinstance(decided, Unplaceable)
    assert decided.message == without_notes(message), "the report shows that too little is free"


@pytest.mark.parametrize(
    ("names", "same"),
    [("", True), (f"; {VERSION}", True), ("; undecided: other", False)],
)
async def test_what_older_code_wrote_without_names_is_the_same_when_it_is_decided_again(
    names: str, same: bool
) -> None:
    story, message = await on_another_version()
    reservation = next(
        envelope
        for envelope in await story.log.read(0)
        if envelope.type == PodVerdictChanged.__name__
    )
    verdict = decode(reservation)
    assert isinstance(verdict, PodVerdictChanged)
    recorded = msgspec.structs.replace(
        verdict, message=without_notes(message).replace("zone 0)", f"zone 0{names})")
    )
    texts = await recomputed(story.log, [(reservation, recorded)], Deciding(CycleConfig(), HERE))
    assert (list(texts.values()) == ["recomputed: the same"]) is same
