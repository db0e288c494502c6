"""Predicted against actual zones: rates by node and policy, and the difference if the kubelet chose
otherwise.
"""

from __future__ import annotations

import pytest

from services.cli import replay_print
from services.replay.predictions import Miss, Predictions, predictions
from services.scheduler.snapshot.config import CycleConfig
from shared.domain.pod import Pod
from shared.events import streams
from shared.events.scheduling_events import NodeCharged, PodReserved
from tests.ledger.given import held, pod, zone
from tests.scheduler.default.story import Story

A, B = pod("a", cpus=4), pod("b", cpus=4)


async def reserve(story: Story, made: Pod, zone_id: int, certain: bool = False) -> None:
    await story.arrives(made)
    reserved = PodReserved(made.uid, "n1", 1, predicted={"c": (zone_id,)}, certain=certain)
    await story.tell(streams.pod(made.uid), reserved)
    await story.tell(streams.node("n1"), NodeCharged("n1", made.uid))


async def node(*others: Pod) -> Story:
    """n1 with two zones of 8 CPUs; other pods are confirmed in zone 0."""
    story = Story()
    await story.node()
    for made in others:
        await story.seen_bound(made, phase="Running")
    await story.report(
        zone(0, 8, 8 - 4 * len(others)),
        zone(1, 8),
        placements=tuple(held(made.name, 0, 4) for made in others),
    )
    return story


async def only_miss(story: Story) -> Miss:
    counted = await predictions(story.log, "node", 10, CycleConfig())
    (miss,) = counted.misses
    return miss


async def test_a_hit_counts_for_node_and_policy() -> None:
    story = await node()
    await reserve(story, A, 0)
    await story.report(zone(0, 8, 4), zone(1, 8), at=2, placements=(held("a", 0, 4),))
    by_node: Predictions = await predictions(story.log, "node", 10, CycleConfig())
    by_policy = await predictions(story.log, "policy", 10, CycleConfig())
    assert [(group.name, group.predicted, group.hit) for group in by_node.groups] == [("n1", 1, 1)]
    assert [(group.name, group.predicted, group.hit) for group in by_policy.groups] == [
        ("single-numa-node", 1, 1)
    ]
    assert by_node.misses == []


async def test_a_reservation_without_proof_is_counted_apart() -> None:
    story = await node()
    await reserve(story, A, 0)
    counted = await predictions(story.log, "node", 10, CycleConfig())
    assert (counted.groups, counted.unproven) == ([], 1)


async def test_a_miss_names_the_pod_that_ended_in_between() -> None:
    story = await node(B)
    await reserve(story, A, 1)
    await story.ends(B)
    await story.report(zone(0, 8, 4), zone(1, 8), at=2, placements=(held("a", 0, 4),))
    miss = await only_miss(story)
    assert (miss.predicted, miss.actual) == ({"c": (1,)}, {"c": (0,)})
    assert miss.difference == "ended in between: ns/b"


async def test_a_miss_names_the_pod_that_started_in_between() -> None:
    story = await node()
    await reserve(story, A, 0)
    await story.seen_bound(B)
    await story.report(
        zone(0, 8, 4), zone(1, 8, 4), at=2, placements=(held("b", 0, 4), held("a", 1, 4))
    )
    assert (await only_miss(story)).difference == "started in between: ns/b"


async def test_a_miss_names_the_pod_that_came_and_went_in_between() -> None:
    story = await node()
    await reserve(story, A, 0)
    await story.seen_bound(B)
    await story.ends(B)
    await story.report(zone(0, 8), zone(1, 8, 4), at=2, placements=(held("a", 1, 4),))
    assert (await only_miss(story)).difference == "came and went in between: ns/b"


async def test_certain_predictions_are_counted_and_a_miss_says_so(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Nothing happened that ends the certainty: kubelet and model differ."""
    for zone_id, shown in ((0, "100.0 %  1        1"), (1, "with certainty, got zone 1")):
        story = await node()
        await reserve(story, A, 0, certain=True)
        free = {zone_id: 4}
        await story.report(
            *(zone(number, 8, free.get(number, 8)) for number in (0, 1)),
            at=2,
            placements=(held("a", zone_id, 4),),
        )
        counted = await predictions(story.log, "node", 10, CycleConfig())
        (group,) = counted.groups
        assert (group.certain, group.certain_hit) == (1, 1 - zone_id)
        replay_print.predictions(counted, "node")
        assert " ".join(shown.split()) in " ".join(capsys.readouterr().out.split())


async def test_a_miss_names_the_pod_that_was_on_its_way() -> None:
    story = await node()
    await story.seen_bound(B)
    await reserve(story, A, 0)
    await story.report(
        zone(0, 8, 4), zone(1, 8, 4), at=2, placements=(held("b", 0, 4), held("a", 1, 4))
    )
    assert (await only_miss(story)).difference == "on the way when it was predicted: ns/b"


async def test_a_miss_with_the_same_pods_shows_the_amounts_or_blames_the_model() -> None:
    story = await node()
    await reserve(story, A, 0)
    await story.report(zone(0, 8, 3), zone(1, 8, 4), at=2, placements=(held("a", 1, 4),))
    assert (
        await only_miss(story)
    ).difference == "available apart from the pod itself: zone 0 cpu 8 -> 3"
    other_prediction = await node()
    await reserve(other_prediction, A, 0)
    await other_prediction.report(zone(0, 8), zone(1, 8, 4), at=2, placements=(held("a", 1, 4),))
    assert "chose otherwise than the model" in (await only_miss(other_prediction)).difference


async def test_under_best_effort_a_miss_does_not_blame_the_model() -> None:
    story = Story()
    await story.node()
    await story.report(zone(0, 8), zone(1, 8), policy="best-effort")
    await reserve(story, A, 0)
    await story.report(
        zone(0, 8), zone(1, 8, 4), at=2, placements=(held("a", 1, 4),), policy="best-effort"
    )
    assert "is a wish" in (await only_miss(story)).difference


async def test_a_miss_names_what_was_known_within_bounds_only(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The undecided parts of the time of prediction: the kubelet is now of a version that is
    covered.
    """
    for version, lines in (("v1.37.1", ("another kubelet version",)), ("v1.36.2", ())):
        story = await node()
        await story.node(kubelet_version=version)
        await reserve(story, A, 0)
        await story.node(kubelet_version="v1.36.2")
        await story.report(zone(0, 8), zone(1, 8, 4), at=2, placements=(held("a", 1, 4),))
        counted = await predictions(story.log, "node", 10, CycleConfig())
        assert [miss.within for miss in counted.misses] == [lines]
        replay_print.predictions(counted, "node")
        said = f"(undecided: {', '.join(lines)})"
        assert (said in capsys.readouterr().out.replace("\n", " ")) is bool(lines)
