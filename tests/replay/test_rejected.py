"""A kubelet's refusal is explained by an end that came between decision and admission, or it is to
be reported.
"""

from __future__ import annotations

from services.replay.explain import explain
from services.replay.recomputing import Deciding
from services.scheduler.core import CoreConfig, SchedulerCore
from services.scheduler.snapshot.config import CycleConfig, Provenance
from shared.domain.pod import Container, Pod
from shared.events import streams
from shared.events.cluster_events import PodEnded, PodObserved
from tests.ledger.given import held, pod, zone
from tests.scheduler.default.story import Story

HERE = Provenance("config-1", "code-1")
GPU = "vendor.com/gpu"


def container(name: str, cpus: int, gpus: int = 0) -> Container:
    amounts = {"cpu": cpus * 1000, **({GPU: gpus} if gpus else {})}
    return Container(name, "app", amounts, amounts)


async def sent_and_refused(*ends: str, made: Pod | None = None) -> Story:
    """Zone 0 has the GPU and 2 CPUs, next to 2 of `other` and none of `idle`; zone 1 has 5. So the
    pod's first container goes to zone 1, and the second has both in zone 0. The pod is decided, the
    others end, and its kubelet rejects it.
    """
    story = Story()
    story.cores = [SchedulerCore(CoreConfig(provenance=HERE))]
    await story.node("n1")
    for name in ("other", "idle"):
        await story.tell(
            streams.pod(f"uid-{name}"),
            PodObserved(pod(name, cpus=2 if name == "other" else 0), node="n1", phase="Running"),
        )
    placed = [held("other", 0, 2, uid="uid-other")]
    await story.report(zone(0, 8, 2, 1), zone(1, 8, 5), placements=tuple(placed))
    await story.arrives(made or pod("p", container("first", 4), container("second", 2, 1)))
    assert await story.decide() == {"uid-p": "n1"}
    for name in ends:
        await story.tell(streams.pod(f"uid-{name}"), PodEnded(f"uid-{name}", "succeeded", "n1"))
    rejected = PodEnded("uid-p", "rejected", "n1", reason="TopologyAffinityError", message="no")
    await story.tell(streams.pod("uid-p"), rejected)
    return story


async def refused(*ends: str, made: Pod | None = None) -> list[str]:
    """Return the story's line about the rejection."""
    story = await sent_and_refused(*ends, made=made)
    (story_lines,) = await explain(story.log, "ns/p", Deciding(CycleConfig(), HERE))
    return [
        note
        for line in story_lines.lines
        if "refused by the kubelet" in line.title
        for note in line.detail
    ]


async def test_an_end_that_moves_a_container_to_another_zone_explains_the_refusal() -> None:
    (story_lines,) = await refused("idle", "other")
    assert story_lines.startswith(
        "explained by what ended between decision and admission (ns/idle, ns/other): "
        "then n1: node(s) had no set of NUMA zones"
    )


async def test_where_nothing_ended_it_is_to_be_reported() -> None:
    (story_lines,) = await refused()
    assert story_lines == (
        "nothing that ended between decision and admission explains it: report it, with "
        "`topolog log export`"
    )


async def test_an_end_that_only_gives_room_explains_nothing() -> None:
    (story_lines,) = await refused("other", made=pod("p", container("first", 4)))
    assert story_lines.startswith("nothing that ended")
    (story_lines,) = await refused("idle")
    assert story_lines.startswith("nothing that ended")
