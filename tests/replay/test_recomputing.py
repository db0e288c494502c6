"""A decision is made again from the log: the same under the same code and configuration, and marked
as different under another.
"""

from __future__ import annotations

import msgspec
import pytest

from services.replay import reading
from services.replay.explain import explain
from services.replay.recomputing import Deciding, Decision, recomputed
from services.scheduler.core import CoreConfig, SchedulerCore
from services.scheduler.queue.shard import Shard, shard_of
from services.scheduler.reserve.gangs import LACKS_PODS_AFTER_S
from services.scheduler.settings import SchedulerSettings, chosen, provenance
from services.scheduler.snapshot.config import GANG_TIMEOUT_S, CycleConfig, Provenance
from shared.domain.gang import Gang
from shared.domain.pod import Container, Pod
from shared.events import streams
from shared.events.binding_events import BindRefused
from shared.events.cluster_events import PodObserved
from shared.events.envelope import Envelope
from shared.events.scheduling_events import PodNominated, PodReserved, PodVerdictChanged
from shared.events.surroundings_events import DeviceClassObserved
from tests.ledger.given import held, pod, zone
from tests.scheduler.default.story import Story

HERE = Provenance("config-1", "code-1")
BY = Deciding(CycleConfig(), HERE)


async def decided(*pods: Pod, made: Provenance = HERE) -> Story:
    """Return a story with three nodes of different size, on which these pods were decided in one
    batch.
    """
    story = Story()
    story.cores = [SchedulerCore(CoreConfig(provenance=made))]
    for number, free in enumerate((8, 6, 7)):
        await story.node(f"n{number}")
        await story.report(zone(0, 8, free), zone(1, 8), node=f"n{number}")
    await story.arrives(*pods)
    await story.decide()
    return story


async def decisions(story: Story) -> list[tuple[Envelope, Decision]]:
    return [
        (at, event) async for at, event in reading.events(story.log) if isinstance(event, Decision)
    ]


async def told(story: Story, deciding: Deciding = BY) -> list[str]:
    return list((await recomputed(story.log, await decisions(story), deciding)).values())


async def test_reservations_and_verdicts_of_one_batch_are_decided_alike_again() -> None:
    story = await decided(*(pod(f"p{number}", cpus=5) for number in range(6)), pod("big", cpus=9))
    kinds = [type(event) for _, event in await decisions(story)]
    assert (kinds.count(PodReserved), kinds.count(PodVerdictChanged)) == (6, 1)
    assert await told(story) == ["recomputed: the same"] * 7


async def test_a_gang_is_decided_alike_again() -> None:
    def gang(name: str, minimum: int, size: int, cpus: int) -> list[Pod]:
        members = [pod(f"{name}{number}", cpus=cpus) for number in range(size)]
        return [msgspec.structs.replace(each, gang=Gang(f"ns/{name}", minimum)) for each in members]

    large, few, fitting = gang("large", 5, 5, 8), gang("few", 3, 2, 1), gang("g", 3, 3, 5)
    story = await decided(pod("p", cpus=2), *large, *few, *fitting)
    await story.append(story.cores[0], story.cores[0].decide(100, LACKS_PODS_AFTER_S))
    kinds = [type(event) for _, event in await decisions(story)]
    assert (kinds.count(PodReserved), kinds.count(PodVerdictChanged)) == (4, 7)
    assert "of 5 pods fit; for the next one: 0/3" in (await story.verdicts(large[0]))[0]
    assert await told(story) == ["recomputed: the same"] * 11


async def test_what_a_roll_back_says_of_a_waiting_pod_is_not_decided_again() -> None:
    gang = Gang("ns/g", 2)
    bound, waiting = (msgspec.structs.replace(pod(n, cpus=5), gang=gang) for n in ("a", "b"))
    story = await decided(waiting)
    await story.seen_bound(bound, "n0")
    for now_s in (0.0, GANG_TIMEOUT_S):
        await story.append(story.cores[0], story.cores[0].decide(0, now_s))
    assert (await told(story))[-1] == (
        "not recomputed: a gang is rolled back by the scheduler's clock"
    )


async def test_a_node_that_a_kube_scheduler_asked_for_is_judged_again_and_not_chosen() -> None:
    """This also holds if other writers allocate a resource that no node counts: a choice among all
    nodes would have sent the pod to another node, or to none.
    """
    story = await decided(pod("own", cpus=2), made=HERE)
    plain = msgspec.structs.replace(pod("p", cpus=5), scheduler_name="numa-scheduler")
    amounts = {"cpu": 1000, "a.com/gpu": 1}
    asking = Container("c", "app", amounts, amounts)
    claiming = msgspec.structs.replace(
        pod("q"), scheduler_name="numa-scheduler", containers=(asking,)
    )
    await story.tell("deviceclass/gpu", DeviceClassObserved("gpu", "a.com/gpu"))
    await story.arrives(plain, claiming)
    for asked_pod in (plain, claiming):
        story.cores[0].binds.ask(asked_pod, "n1")
        await story.decide()
    asked = "on the node that numa-scheduler requested"
    assert await told(story) == ["recomputed: the same", *[f"recomputed: the same, {asked}"] * 2]


async def test_nodes_that_only_reports_name_are_no_part_of_it() -> None:
    """Thousands of invented nodes would make `explain` slow, and report a changed decision."""
    story = Story()
    story.cores = [SchedulerCore(CoreConfig(provenance=HERE))]
    await story.node("n0")
    await story.report(zone(0, 8, 4), zone(1, 8), node="n0")
    await story.report(zone(0, 64), node="invented")
    await story.arrives(pod("a", cpus=6), pod("big", cpus=9))
    await story.decide()
    assert await told(story) == ["recomputed: the same"] * 2


async def test_a_later_history_does_not_change_what_is_recomputed() -> None:
    first = pod("a", cpus=5)
    story = await decided(first)
    await story.ends(first)
    await story.node_goes("n0")
    assert await told(story) == ["recomputed: the same"]


async def test_a_decision_of_one_of_several_schedulers_is_decided_alike_again() -> None:
    """The scheduler tried its own nodes first, which the decision records with its configuration. A
    single scheduler would have chosen another node.
    """
    story = Story()
    story.cores = [SchedulerCore(CoreConfig(provenance=HERE)) for _ in range(2)]
    for number in range(20):
        await story.node(f"n{number}")
        await story.report(zone(0, 8, 8 - number % 6), zone(1, 8), node=f"n{number}")
    await story.arrives(pod("a", cpus=2))
    core, alone = story.cores
    elsewhere = next(proposal.node for proposal in alone.decide(1) if proposal.uid)
    pairs = [
        (f"scheduler/topolog/{first}", f"scheduler/topolog/{second}")
        for first in range(9)
        for second in range(first)
    ]
    shares = [Shard(tuple(sorted(pair)), own) for pair in pairs for own in pair]
    share = next(each for each in shares if each.has("uid-a") and not each.has(elsewhere))
    story.role = share.own
    core.take_shard(share)
    await story.decide()
    ((position, event),) = await decisions(story)
    assert isinstance(event, PodReserved)
    assert share.has(event.node)
    assert shard_of(event.config, position.role) == share
    assert await told(story) == ["recomputed: the same"]


async def full(*nodes: str, spare: int = 0) -> Story:
    """Nodes of two zones, each filled by a pod of low priority: 0 in one zone, 1 or 2 in the other;
    `spare` CPUs are free on the first node."""
    story = Story()
    story.cores = [SchedulerCore(CoreConfig(provenance=HERE))]
    for index, name in enumerate(nodes, 1):
        await story.node(name)
        lows = [
            msgspec.structs.replace(pod(f"{name}-low{zone}", cpus=8), priority=zone * index)
            for zone in (0, 1)
        ]
        for low in lows:
            await story.seen_bound(low, name, phase="Running")
        placements = tuple(held(low.name, index, 8) for index, low in enumerate(lows))
        free = spare if name == nodes[0] else 0
        await story.report(zone(0, 8 + free, free), zone(1, 8, 0), node=name, placements=placements)
    return story


def high(name: str, **fields: object) -> Pod:
    return msgspec.structs.replace(pod(name, cpus=8), priority=1000, **fields)


async def nominated(story: Story) -> list[str]:
    """Return the line of each nomination."""
    wanted = [
        (at, event)
        async for at, event in reading.events(story.log)
        if isinstance(event, PodNominated)
    ]
    lines = await recomputed(story.log, wanted, BY)
    assert list(lines) == [at.position for at, _ in wanted]
    return list(lines.values())


async def test_a_nomination_is_searched_again_with_what_others_are_to_evict_spared() -> None:
    story = await full("n1", "n2")
    await story.arrives(high("one"), high("two"), pod("small", cpus=1))
    await story.decide()
    assert await nominated(story) == ["recomputed: the same"] * 2


async def test_reservations_of_its_batch_stand_in_for_a_nomination_too() -> None:
    """The small pod takes the rest of n1: no pod is evicted there before that is folded."""
    story = await full("n1", "n2", spare=1)
    await story.arrives(msgspec.structs.replace(pod("small", cpus=1), priority=2000), high("one"))
    proposals = story.cores[0].decide(10)
    await story.append(story.cores[0], proposals)
    assert [node for _, node in await story.reservations()] == ["n1"]
    assert [
        event.node for event in await story.events(PodNominated) if isinstance(event, PodNominated)
    ] == ["n2"]
    assert await nominated(story) == ["recomputed: the same"]


async def test_explain_says_it_of_a_nomination_too() -> None:
    story = await full("n1")
    await story.arrives(high("one"))
    await story.decide()
    (story_lines,) = await explain(story.log, "one", BY)
    (line,) = [line for line in story_lines.lines if line.title.startswith("nominated to")]
    assert line.detail[-1] == "recomputed: the same"


async def test_a_nomination_on_the_only_searched_node_is_recomputed_the_same() -> None:
    """Evicting on another node costs as little; the log cannot say that only this one was
    searched.
    """
    story = await full("n1", "n2")
    await story.arrives(high("one"))
    core = story.cores[0]
    core.decide(0)
    columns = core.cluster.columns
    assert columns is not None
    pods = core.ledger.pods
    first = columns.nominate(pods["uid-one"].pod, pods, (), None)
    assert first is not None
    other_node = {"n1": "n2", "n2": "n1"}[first.node]
    nomination = columns.nominate(pods["uid-one"].pod, pods, (), (other_node,))
    assert nomination is not None
    event = PodNominated(
        "uid-one",
        other_node,
        nomination.victims,
        nomination.zones,
        core.ledger.position,
        *msgspec.structs.astuple(HERE),
    )
    await story.tell(streams.pod("uid-one"), event)
    (said,) = await nominated(story)
    assert said.startswith(
        f"recomputed: the same on {other_node}; "
        f"over all nodes it would be nominated to {first.node}, "
        f"evicting ns/{first.node}-low0 ("
    )
    assert said.endswith("whom it spared after a refused eviction)")


async def test_a_nomination_that_does_not_follow_from_the_events_is_reported() -> None:
    story = await full("n1")
    await story.arrives(high("one"))
    await story.tell(
        streams.pod("uid-one"),
        PodNominated("uid-one", "n1", ("uid-n1-low1",), {}, await story.log.head()),
    )
    (said,) = await nominated(story)
    note = (
        "recomputed, its code and configuration not being known: over all nodes it would "
        "be nominated to n1"
    )
    assert said.startswith(f"{note}, evicting ns/n1-low0 (")


async def test_other_code_and_another_configuration_are_named() -> None:
    story = await decided(pod("a", cpus=5))
    assert await told(story, Deciding(CycleConfig(), Provenance("config-1", "code-2"))) == [
        "recomputed by another code code-1, here code-2: the same"
    ]
    (text,) = await told(
        story, Deciding(CycleConfig(strategy="MostAllocated"), Provenance("config-2", "code-1"))
    )
    assert text.startswith(
        "recomputed by another configuration config-1, here config-2: would be reserved "
        "on n1, score "
    )


async def test_a_decision_of_a_release_that_named_nothing_is_recomputed_all_the_same() -> None:
    story = await decided(pod("a", cpus=5), made=Provenance())
    assert await told(story) == ["recomputed, its code and configuration not being known: the same"]


async def test_a_reservation_that_does_not_follow_from_the_events_is_reported() -> None:
    story = await decided(pod("a", cpus=5))
    (_, event), other_pod = (await decisions(story))[0], pod("b", cpus=5)
    assert isinstance(event, PodReserved)
    await story.tell(
        streams.pod(other_pod.uid), msgspec.structs.replace(event, uid=other_pod.uid, node="n1")
    )
    assert "not recomputed: the log up to the decision does not hold the pod" in await told(story)
    elsewhere = next(name for name in ("n1", "n2") if name != event.node)
    await story.tell(streams.pod("uid-a"), msgspec.structs.replace(event, node=elsewhere))
    assert "would be reserved on" in (await told(story))[-1]
    assert "the log was altered" in (await told(story))[-1]


async def test_an_upstream_cache_is_not_recomputed() -> None:
    story = await decided(pod("a", cpus=5))
    assert await told(story, Deciding(CycleConfig(), HERE, True)) == [
        "not recomputed: an upstream cache decides here"
    ]


async def test_explain_says_it_at_the_decision() -> None:
    story = await decided(pod("a", cpus=5))
    (story_lines,) = await explain(story.log, "a", BY)
    (line,) = [line for line in story_lines.lines if line.title.startswith("reserved on")]
    assert line.detail[-1] == "recomputed: the same"


def test_fingerprints_distinguish_configurations_and_cover_the_deciding_code() -> None:
    plain = provenance(CycleConfig())
    assert provenance(CycleConfig()) == plain
    assert provenance(CycleConfig(strategy="MostAllocated")).config != plain.config
    assert provenance(CycleConfig(weights={"cpu": 2})).config != plain.config
    assert provenance(CycleConfig(), SchedulerSettings()).code != plain.code


@pytest.mark.parametrize("settings", [{}, {"cache": "overreserve"}])
def test_a_service_names_what_decides(settings: dict[str, object]) -> None:
    made = chosen(SchedulerSettings(**settings)).core.provenance  # type: ignore[arg-type]
    assert len(made.config) == len(made.code) == 16


async def test_explain_says_of_a_pod_that_terminates_unbound_that_it_is_being_deleted() -> None:
    """It must not say that the pod waits, or is bound to a node without a name."""
    story = await decided(pod("a", cpus=5))
    await story.tell(
        streams.pod("uid-a"), BindRefused("uid-a", "n0", "terminating", "pod a is being deleted")
    )
    (story_lines,) = await explain(story.log, "a")
    assert story_lines.current.startswith("is being deleted since ")
    assert "zone" not in story_lines.current
    await story.tell(streams.pod("uid-a"), PodObserved(pod("a", cpus=5), terminating=True))
    (story_lines,) = await explain(story.log, "a")
    assert story_lines.current.startswith("is being deleted since ")
