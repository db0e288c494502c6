"""Evidence against a node excludes it for pods of one class, by one event; the remedy or time ends
the exclusion.
"""

from __future__ import annotations

import msgspec
import pytest

from services.scheduler.handlers import dump, load
from services.scheduler.reserve.exclusions import AGAIN_AFTER_S, CONTESTED_AFTER
from shared.domain.pod import Pod
from shared.eventlog.port import Appended
from shared.events import streams
from shared.events.binding_events import BindIntended, BindRefused
from shared.events.cluster_events import NodeEnded, PodEnded, PodRunning
from shared.events.report_events import NodeReportExpired
from shared.events.scheduling_events import NodeReadmitted, NodeSetAside, PodReadmitted
from tests.ledger.given import pod, zone
from tests.scheduler.default.story import Story

WRONG = "TopologyAffinityError"


async def world(*nodes: str, schedulers: int = 1, strategy: str = "BestFit") -> Story:
    story = Story(schedulers, strategy=strategy)
    for name in nodes or ("n1", "n2"):
        await story.node(name)
        await story.report(zone(0, 16), node=name)
    return story


async def set_asides(story: Story) -> list[NodeSetAside]:
    return [event for event in await story.events(NodeSetAside) if isinstance(event, NodeSetAside)]


async def placed(story: Story, made: Pod) -> str:
    """Return the node of the next decision, "" for none."""
    await story.arrives(made)
    return (await story.decide()).get(made.uid, "")


async def rejected(story: Story, made: Pod, node: str, reason: str = WRONG) -> None:
    """Let the kubelet reject a pod on the node, and a controller delete it."""
    await story.seen_bound(made, node)
    await story.tell(streams.pod(made.uid), PodEnded(made.uid, "rejected", node, reason, "no"))


async def test_replacements_do_not_follow_each_other_to_a_kubelet_that_rejects_them() -> None:
    """kubernetes#84869: the node has another policy than its report says."""
    story = await world("n1")
    for number in range(12):
        node = await placed(story, made := pod(f"p{number}", cpus=4))
        if node:
            await rejected(story, made, node)
    assert len(await story.reservations()) == 1
    assert [(event.node, event.cause, event.detail) for event in await set_asides(story)] == [
        ("n1", "rejected", f"{WRONG}: no")
    ]
    assert "excluded for pods that request cpu 4" in (await story.verdicts(pod("p5", cpus=4)))[-1]


async def test_the_others_are_used_and_pods_of_another_shape_still_go_there() -> None:
    story = await world(strategy="LeastAllocated")
    first = await placed(story, made := pod("a", cpus=4))
    await rejected(story, made, first)
    assert await placed(story, pod("b", cpus=4)) == ({"n1", "n2"} - {first}).pop()
    assert {await placed(story, pod(f"c{number}", cpus=2)) for number in range(3)} >= {first}


@pytest.mark.parametrize("reason", ["OutOfcpu", "NodeAffinity", "Evicted"])
async def test_other_reasons_of_a_kubelet_say_nothing_about_its_zones(reason: str) -> None:
    story = await world("n1")
    await rejected(story, pod("a", cpus=4), "n1", reason)
    assert await placed(story, pod("b", cpus=4)) == "n1"
    assert await set_asides(story) == []


async def test_a_first_rejection_ends_with_other_amounts_and_a_second_only_with_another_node() -> (
    None
):
    story = await world("n1")
    await rejected(story, pod("a", cpus=4), "n1")
    await story.report(zone(0, 16), at=2)
    assert await placed(story, pod("b", cpus=4)) == "", "a report that says the same mends nothing"
    await story.report(zone(0, 16, 12), at=3)
    assert await story.decide() == {"uid-b": "n1"}, "who waited is woken"
    await rejected(story, pod("b", cpus=4), "n1")
    await story.report(zone(0, 16, 14), at=4)
    assert await placed(story, pod("c", cpus=4)) == ""
    await story.report(zone(0, 16, 14), at=5, policy="restricted")
    assert await story.decide() == {"uid-c": "n1"}
    assert [event.strikes for event in await set_asides(story)] == [1, 2]


@pytest.mark.parametrize("silent", [True, False])
@pytest.mark.parametrize("seen", ["before", "after"])
async def test_a_rejection_reported_after_its_node_left_excludes_nothing(
    silent: bool, seen: str
) -> None:
    """Nothing is kept of a node that left, is silent and has no pods, not even its stream's
    version: no event could be appended.
    """
    story = await world("n1")
    made, gone = pod("a", cpus=4), NodeEnded("n1", "uid-n1", "deleted")
    if seen == "before":
        await story.seen_bound(made)
    await story.tell(streams.node("n1"), gone)
    if silent:
        await story.tell(streams.report("n1"), NodeReportExpired("n1", 60))
    if seen == "after":
        await story.seen_bound(made)
    await story.tell(streams.pod(made.uid), PodEnded(made.uid, "rejected", "n1", WRONG, "no"))
    assert story.cores[0].decide(0) == []
    assert ("n1" in story.cores[0].ledger.nodes) is not silent


async def test_a_rejection_that_no_report_ends_is_tried_again_each_time_later() -> None:
    story = await world("n1")
    core, now_s = story.cores[0], 0.0
    for strikes, wait_s in enumerate((300, 600, 1200, 2400, 3600, 3600), 1):
        await rejected(story, pod(f"p{strikes}", cpus=4), "n1")
        await story.append(core, core.decide(0, now_s))
        last = (await set_asides(story))[-1]
        assert last.strikes == strikes
        assert core.decide(0, now_s + wait_s - 1) == [], "not yet"
        now_s += wait_s
        (proposal,) = core.decide(0, now_s)
        assert proposal.drafts[0].event == NodeReadmitted("n1", last.shape)
        await story.append(core, [proposal])
        assert core.decide(0, now_s) == [], "once"
    assert await placed(story, pod("after", cpus=4)) == "n1"


async def test_a_pod_that_runs_there_forgives_what_was() -> None:
    story = await world("n1")
    await rejected(story, pod("a", cpus=4), "n1")
    await story.report(zone(0, 16, 12), at=2)
    await story.seen_bound(pod("b", cpus=4))
    await story.tell(streams.pod("uid-b"), PodRunning("uid-b", "n1"))
    await rejected(story, pod("c", cpus=4), "n1")
    await story.decide()
    assert [event.strikes for event in await set_asides(story)][-1] == 1


async def test_an_operator_opens_the_node() -> None:
    story = await world("n1")
    await rejected(story, pod("a", cpus=4), "n1")
    assert await placed(story, pod("b", cpus=4)) == ""
    await story.tell(streams.node("n1"), NodeReadmitted("n1", cause="operator"))
    assert await story.decide() == {"uid-b": "n1"}


async def test_two_schedulers_and_a_restart_write_one_event() -> None:
    story = await world("n1", schedulers=2)
    await rejected(story, pod("a", cpus=4), "n1")
    first, second = story.cores
    both = first.decide(0), second.decide(0)
    for core, proposals in zip((first, second), both, strict=True):
        await story.append(core, proposals)
    assert len(await set_asides(story)) == 1
    restored = load(first.config, dump(first))
    assert restored.exclusions == first.exclusions
    assert restored.decide(0) == []


async def test_what_sets_a_node_aside_costs_the_reservations_of_its_batch_nothing() -> None:
    story = await world("n1")
    await rejected(story, pod("a", cpus=4), "n1")
    await rejected(story, pod("b", cpus=5), "n1")
    await story.arrives(pod("c", cpus=2))
    core = story.cores[0]
    outcomes = await story.append(core, core.decide(10))
    assert [type(outcome) for outcome in outcomes] == [Appended] * len(outcomes)
    assert (len(await set_asides(story)), len(await story.reservations())) == (2, 1)


async def test_evidence_counts_before_its_event_and_after_a_restart_between_the_two() -> None:
    story = await world("n1")
    await rejected(story, pod("a", cpus=4), "n1")
    core = load(story.cores[0].config, dump(story.cores[0]))
    (proposal,) = core.decide(0)
    assert isinstance(proposal.drafts[0].event, NodeSetAside)


async def denied(story: Story, made: Pod, node: str, cause: str) -> None:
    stream = streams.pod(made.uid)
    await story.tell(stream, BindIntended(made.uid, "ns", made.name, node, 0))
    await story.tell(stream, BindRefused(made.uid, node, cause, "closed for maintenance"))


async def test_a_binding_that_a_policy_denies_goes_to_another_node_and_is_tried_again_later() -> (
    None
):
    story = await world()
    first = await placed(story, made := pod("a", cpus=4))
    await denied(story, made, first, "denied")
    second = (await story.decide())["uid-a"]
    assert second != first
    assert [(event.node, event.cause) for event in await set_asides(story)] == [(first, "denied")]
    core = story.cores[0]
    assert core.decide(0, AGAIN_AFTER_S["denied"] - 1) == []
    (proposal,) = core.decide(0, AGAIN_AFTER_S["denied"])
    assert proposal.drafts[0].event == NodeReadmitted(first, (await set_asides(story))[0].shape)


async def test_a_missing_right_is_asked_for_once_in_a_while_and_not_on_every_node() -> None:
    story = await world("n1", "n2", "n3")
    node = await placed(story, made := pod("a", cpus=4))
    await denied(story, made, node, "forbidden")
    assert await story.decide() == {}
    assert await set_asides(story) == []
    assert not any(entry.charges for entry in story.cores[0].ledger.nodes.values()), (
        "the charge is freed"
    )
    core = story.cores[0]
    assert core.decide(0, AGAIN_AFTER_S["barred"] - 1) == []
    proposals = core.decide(0, AGAIN_AFTER_S["barred"])
    assert [proposal.drafts[0].event for proposal in proposals] == [PodReadmitted("uid-a")]
    await story.append(core, proposals)
    assert list(await story.decide()) == ["uid-a"]


async def test_a_pod_that_is_barred_does_not_hold_up_others_of_its_shape() -> None:
    story = await world("n1")
    await placed(story, made := pod("a", cpus=4))
    await denied(story, made, "n1", "invalid")
    assert await placed(story, pod("b", cpus=4)) == "n1"


async def test_a_proposal_that_loses_race_after_race_leaves_its_node_alone_for_a_moment() -> None:
    story = await world("n1")
    await story.arrives(pod("a", cpus=4))
    core = story.cores[0]
    for _ in range(CONTESTED_AFTER):
        (proposal,) = [each for each in core.decide(10) if each.uid]
        core.contested(proposal)
        core.conflicted(proposal)
    proposals = core.decide(10)
    assert next(type(proposal.drafts[0].event).__name__ for proposal in proposals) == "NodeSetAside"
    await story.append(core, proposals[:1])
    assert (await set_asides(story))[0].cause == "contested"


async def test_a_gated_pod_gets_no_verdict_and_is_decided_when_its_gates_are_lifted() -> None:
    """Kubernetes keeps its condition SchedulingGated; autoscalers look at it."""
    story = await world("n1")
    made = pod("a", cpus=4)
    gated = msgspec.structs.replace(
        made, constraints=msgspec.structs.replace(made.constraints, gates=("example.com/g",))
    )
    assert await placed(story, gated) == ""
    assert await story.verdicts(made) == []
    restarted = load(story.cores[0].config, dump(story.cores[0]))
    assert made.uid not in restarted.queue, "a restart lifts no gate"
    assert await placed(story, made) == "n1"
