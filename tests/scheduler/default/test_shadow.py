"""Shadow mode: each placement of another scheduler is judged by the ledger of that moment and
confirmed by its kubelet; nothing is done.
"""

from __future__ import annotations

import msgspec

from services.replay.shadow import shadow
from services.scheduler.core import CoreConfig, SchedulerCore
from shared.domain.pod import Pod
from shared.events import streams
from shared.events.cluster_events import PodEnded, PodRunning
from tests.ledger.given import pod, zone
from tests.scheduler.default.story import Story, foreign


async def world() -> Story:
    """A scheduler in shadow mode; n1 has 8 CPUs in one zone, n2 has two zones of 3."""
    story = Story()
    story.cores = [SchedulerCore(msgspec.structs.replace(CoreConfig(), shadow=True))]
    await story.node("n1")
    await story.report(zone(0, 8))
    await story.node("n2")
    await story.report(zone(0, 3), zone(1, 3), node="n2")
    return story


async def runs(story: Story, made: Pod, node: str) -> None:
    await story.seen_bound(foreign(made), node)
    await story.tell(streams.pod(made.uid), PodRunning(made.uid, node))


async def rejected(
    story: Story, made: Pod, node: str, reason: str = "TopologyAffinityError"
) -> None:
    await story.seen_bound(foreign(made), node)
    await story.tell(streams.pod(made.uid), PodEnded(made.uid, "rejected", node, reason))


async def everything(story: Story) -> None:
    await runs(story, pod("fits", cpus=6), "n1")
    await rejected(story, pod("wide", cpus=4), "n2")
    await rejected(story, pod("unlucky", cpus=2), "n2")
    await runs(story, pod("squeezed", cpus=6), "n1")
    await rejected(story, pod("other", cpus=4), "n2", "OutOfcpu")


async def test_every_case_has_its_name_and_its_reason() -> None:
    story = await world()
    await everything(story)
    cases = {case.judged.pod: case for case in story.cores[0].shadow.take()}
    assert {key: case.outcome for key, case in cases.items()} == {
        "ns/fits": "agreed",
        "ns/wide": "prevented",
        "ns/unlucky": "missed",
        "ns/squeezed": "stricter",
    }
    assert cases["ns/wide"].judged.refused == "node(s) had no NUMA zone as large as 4 cpu"
    assert cases["ns/wide"].reason == "TopologyAffinityError"
    assert cases["ns/squeezed"].judged.refused.startswith(
        "node(s) had no NUMA zone with 6 free cpu"
    )


async def test_a_shadow_decides_and_proposes_nothing_not_even_for_its_own_pods() -> None:
    story = await world()
    await story.arrives(pod("mine", cpus=2))
    await everything(story)
    assert story.cores[0].decide(100, 1e9) == []
    assert story.cores[0].queue.ready_count() == 0


async def test_what_runs_already_when_it_is_first_seen_is_no_case() -> None:
    story = await world()
    await story.seen_bound(foreign(pod("old", cpus=6)), "n1", phase="Running")
    await story.seen_bound(foreign(pod("static", cpus=6)), "n1", static=True)
    assert story.cores[0].shadow.open == 0


async def test_it_says_where_the_pod_would_have_gone() -> None:
    story = await world()
    await rejected(story, pod("wide", cpus=4), "n2")
    (case,) = story.cores[0].shadow.take()
    assert case.judged.instead == "n1"


async def test_a_log_gives_the_same_afterwards_without_topologs_own_placements() -> None:
    story = await world()
    await everything(story)
    live = story.cores[0].shadow
    replayed = await shadow(story.log, 2)
    assert replayed.counts == live.counts
    assert [case.outcome for case in replayed.cases] == ["prevented", "missed"]
    assert replayed.own == 0
    placing = Story()
    await placing.node()
    await placing.report(zone(0, 8))
    await placing.arrives(pod("a", cpus=4))
    await placing.decide()
    await placing.seen_bound(pod("a", cpus=4))
    again = await shadow(placing.log, 5)
    assert (again.own, sum(again.counts.values()), again.open) == (1, 0, 0)
