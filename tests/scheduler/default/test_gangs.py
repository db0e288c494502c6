"""Gangs: a minimum of pods is placed together, or none is."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from services.scheduler.core import CoreConfig, SchedulerCore
from services.scheduler.queue.shard import Shard
from services.scheduler.reserve.gangs import LACKS_PODS_AFTER_S
from shared.domain.gang import KOORDINATOR_MIN, KOORDINATOR_NAME, Gang, GangRules, MatchPolicy
from shared.domain.pod import Pod
from shared.eventlog.port import Conflict
from shared.events import streams
from shared.events.binding_events import BindIntended, BindRefused, PodBound
from shared.events.cluster_events import PodObserved
from shared.events.codec import decode
from shared.events.scheduling_events import (
    NodeMarkedDirty,
    PodNominated,
    PodReserved,
    ReservationWithdrawn,
)
from shared.events.surroundings_events import PodGroupObserved, SurroundingEnded
from tests.ledger.given import container, held, pod, zone
from tests.scheduler.default import test_constraints as constraints
from tests.scheduler.default.story import Story, foreign


def member(name: str, size: int = 3, cpus: int = 4, gang: str = "train", **fields: Any) -> Pod:
    return pod(name, cpus=cpus, gang=Gang(f"ns/{gang}", size), **fields)


async def world(*free_cpus: int, schedulers: int = 1) -> Story:
    """A node of one zone for each number of free CPUs."""
    story = Story(schedulers)
    for number, cpus in enumerate(free_cpus):
        await story.node(f"n{number}")
        await story.report(zone(0, cpus), node=f"n{number}")
    return story


async def in_one_commit(story: Story) -> list[set[str]]:
    """The pods of each commit that reserves."""
    commits: dict[str, set[str]] = {}
    envelopes = await story.log.read(0)
    for envelope in envelopes:
        if envelope.type == "PodReserved":
            commits.setdefault(envelope.commit_id, set()).add(envelope.stream.split("/uid-")[1])
    return list(commits.values())


async def later(story: Story) -> None:
    """A turn after pods that are under way have come."""
    await story.append(story.cores[0], story.cores[0].decide(100, LACKS_PODS_AFTER_S))


async def bound(story: Story, made: Pod, node: str) -> None:
    await story.tell(streams.pod(made.uid), BindIntended(made.uid, "ns", made.name, node, 1))
    await story.tell(streams.pod(made.uid), PodBound(made.uid, node))


async def test_a_gang_waits_for_its_pods_and_is_reserved_by_one_commit() -> None:
    story = await world(4, 4, 4)
    await story.arrives(member("a"), member("b"))
    assert await story.decide() == {}
    assert await story.verdicts(member("b")) == []  # The third may be under way.
    await later(story)
    assert await story.verdicts(member("b")) == ["gang ns/train waits until 3 of its pods exist"]
    await story.arrives(member("c"))
    await story.decide()
    assert await in_one_commit(story) == [{"a", "b", "c"}]
    reservations = await story.events(PodReserved)
    assert {event.gang for event in reservations} == {3}
    assert len({event.node for event in reservations}) == 3


async def test_a_gang_that_does_not_fit_reserves_nothing_and_names_the_shortage() -> None:
    story = await world(4, 4)
    pods = [member(name) for name in "abc"]
    await story.arrives(*pods)
    assert await story.decide() == {}
    assert await story.verdicts(pods[0]) == [
        "gang ns/train: 2 of 3 pods fit; for the next one: 0/2 nodes are available: "
        "2 node(s) had no NUMA zone with 4 free cpu (best: 0 on n0/zone 0)."
    ]
    assert await story.verdicts(pods[2]) == ["gang ns/train waits as a whole; see pod a"]
    await story.arrives(single := pod("single", cpus=4))  # Nothing is held meanwhile.
    assert set(await story.decide()) == {single.uid}
    await story.node("n9")
    await story.report(zone(0, 8), node="n9")
    await story.decide()
    assert await in_one_commit(story) == [{"single"}, {"a", "b", "c"}]


async def test_a_waiting_gang_that_loses_a_pod_waits_for_another() -> None:
    story = await world(4, 4)
    pods = [member(name) for name in "abc"]
    await story.arrives(*pods)
    await story.decide()
    await story.ends(pods[2])
    await story.report(zone(0, 8), node="n1", at=2)
    assert await story.decide() == {}
    assert await in_one_commit(story) == []
    await story.arrives(member("d"))
    await story.decide()
    assert await in_one_commit(story) == [{"a", "b", "d"}]


async def test_of_two_gangs_that_fit_alone_one_is_placed_whole() -> None:
    story = await world(4, 4, 4, 4)
    await story.arrives(*(member(f"{gang}{n}", gang=gang) for n in range(3) for gang in "ab"))
    await story.decide()
    assert await in_one_commit(story) == [{"a0", "a1", "a2"}]
    for n in range(3):
        await story.ends(member(f"a{n}"))
    await story.decide()
    assert await in_one_commit(story) == [{"a0", "a1", "a2"}, {"b0", "b1", "b2"}]


async def test_rules_among_pods_count_for_a_gang_and_not_after_it_failed() -> None:
    story = await constraints.world("n1", "n2", "n3")

    def one(name: str, gang: str, size: int) -> PodObserved:
        rules = {**constraints.apart(constraints.HOST), **constraints.port(8080)}
        words = {KOORDINATOR_NAME: gang, KOORDINATOR_MIN: str(size)}
        return constraints.seen(name, labels={"app": "web"}, annotations=words, **rules)

    events = [one(f"four{n}", "four", 4) for n in range(4)]
    events += [constraints.seen("web", labels={"app": "web"})]
    events += [one(f"two{n}", "two", 2) for n in range(2)]
    for event in events:
        await story.tell(streams.pod(event.pod.uid), event)
    await story.decide()
    nodes = dict(await story.reservations())
    assert nodes.keys() == {"uid-web", "uid-two0", "uid-two1"}
    assert len(set(nodes.values())) == 3
    (waits,) = await story.verdicts(events[0].pod)
    assert waits.startswith("gang ns/four: ")


async def test_pods_beyond_the_minimum_are_placed_by_themselves() -> None:
    story = await world(4, 4, 4, 4)
    pods = [member(name) for name in "abcde"]
    await story.arrives(*pods)
    await story.decide()
    await later(story)
    assert await story.verdicts(pods[4]) == ["gang ns/train waits until 3 of its pods are bound"]
    for event in await story.events(PodReserved):
        await bound(story, next(made for made in pods if made.uid == event.uid), event.node)
    await story.decide()
    assert await in_one_commit(story) == [{"a", "b", "c"}, {"d"}]
    waits = (await story.verdicts(member("e")))[-1]
    assert waits.startswith("0/4 nodes are available: 4 node(s) had no NUMA zone with 4 free cpu")


async def test_larger_pods_of_the_gang_are_left_out_if_enough_others_fit() -> None:
    story = await world(4, 4, 4)
    await story.arrives(member("large", cpus=8), *(member(name) for name in "abc"))
    await story.decide()
    assert await in_one_commit(story) == [{"a", "b", "c"}]


@pytest.mark.parametrize("lost", ["refused", "ended", "node"])
async def test_a_lost_reservation_withdraws_reservations_without_a_binding(lost: str) -> None:
    story = await world(4, 4, 4, 4)
    pods = {name: member(name) for name in "abcd"}
    await story.arrives(*(pods[name] for name in "abc"))
    await story.decide(1)
    nodes = {event.uid: event.node for event in await story.events(PodReserved)}
    gone = nodes["uid-c"]
    await bound(story, pods["a"], nodes["uid-a"])
    if lost == "refused":
        await story.tell("pod/uid-c", BindIntended("uid-c", "ns", "c", gone, 1))
        await story.tell("pod/uid-c", BindRefused("uid-c", gone, "forbidden", "no"))
    elif lost == "ended":
        await story.ends(pods["c"])
    else:
        await story.node_goes(gone)
    await story.decide()
    withdrawn = await story.events(ReservationWithdrawn)
    assert ("uid-b", "gang") in {(event.uid, event.cause) for event in withdrawn}
    assert "uid-a" not in {event.uid for event in withdrawn}
    await story.arrives(pods["d"])
    await story.decide()
    assert (await in_one_commit(story))[1] == ({"b", "c"} if lost == "node" else {"b", "d"})


async def test_once_the_minimum_was_bound_later_pods_are_placed_by_themselves() -> None:
    story = await world(4, 4, 4)
    pods = [member(name) for name in "abc"]
    await story.arrives(*pods)
    await story.decide()
    for event in await story.events(PodReserved):
        await bound(story, next(made for made in pods if made.uid == event.uid), event.node)
    await story.ends(pods[0])
    await story.ends(pods[1])
    await story.arrives(member("d"))
    await story.decide()
    assert await in_one_commit(story) == [{"a", "b", "c"}, {"d"}]
    assert await story.events(ReservationWithdrawn) == []


async def test_no_pod_is_decided_on_top_of_a_pod_that_may_be_lost() -> None:
    """S14: neither the observer's nor the binder's appends are known when a commit is decided."""
    story = await world(4, 4, 4, 4, 4, 4)
    pods = {name: member(name) for name in "abcdef"}
    await story.arrives(*(pods[name] for name in "abc"))
    await story.decide()
    nodes = {event.uid: event.node for event in await story.events(PodReserved)}
    for name in "ab":
        uid = pods[name].uid
        await story.tell(streams.pod(uid), BindIntended(uid, "ns", name, nodes[uid], 1))
    await story.ends(pods["c"])
    await story.arrives(*(pods[name] for name in "def"))
    await story.decide()
    assert await in_one_commit(story) == [{"a", "b", "c"}]
    await bound(story, pods["a"], nodes["uid-a"])
    await story.tell("pod/uid-b", BindRefused("uid-b", nodes["uid-b"], "forbidden", "no"))
    await story.decide()
    assert await in_one_commit(story) == [{"a", "b", "c"}, {"d", "e"}]


@pytest.mark.parametrize(
    ("policy", "later_commits"),
    [
        ("once-satisfied", [{"d"}, {"e"}]),
        ("waiting-and-running", [{"d", "e"}]),
        ("only-waiting", []),
    ],
)
async def test_the_match_policy_says_which_pods_count(
    policy: MatchPolicy, later_commits: list[set[str]]
) -> None:
    """The gang of three is bound, one pod of it ends, and two pods come."""
    story = await world(9, 9, 9)
    gang = Gang("ns/train", 3, rules=GangRules(policy))
    pods = {name: pod(name, cpus=2, gang=gang) for name in "abcde"}
    await story.arrives(*(pods[name] for name in "abc"))
    await story.decide()
    for event in await story.events(PodReserved):
        await bound(story, pods[event.uid.removeprefix("uid-")], event.node)
    await story.ends(pods["a"])
    await story.ends(pods["b"])
    await story.arrives(pods["d"])
    await story.decide()
    await story.arrives(pods["e"])
    await story.decide()
    assert (await in_one_commit(story))[1:] == later_commits
    assert await story.events(ReservationWithdrawn) == []


async def test_a_gang_belongs_to_one_of_several_schedulers() -> None:
    story = await world(4, 4, 4, 4, schedulers=2)
    members = "scheduler/topolog/0", "scheduler/topolog/1"
    for core, role in zip(story.cores, members, strict=True):
        core.take_shard(Shard(members, role))
    gangs = [f"g{number}" for number in range(4)]
    pods = [member(f"{gang}-{n}", size=2, cpus=1, gang=gang) for n in range(2) for gang in gangs]
    await story.arrives(*pods)
    proposals = [core.decide(100) for core in story.cores]
    sizes = Counter(len(p.members) for of_core in proposals for p in of_core if p.members)
    assert sizes == {2: 4}
    assert all(of_core for of_core in proposals)


async def test_a_gang_that_lost_a_race_for_one_node_is_decided_again_as_a_whole() -> None:
    story = await world(4, 4, 4)
    core = story.cores[0]
    await story.arrives(*(member(name) for name in "abc"))
    proposals = core.decide(100)
    await story.seen_bound(foreign(pod("other", cpus=1)), "n1")
    await story.tell(streams.node("n1"), NodeMarkedDirty("n1", "rejections"))
    outcomes = await story.append(core, proposals)
    assert [type(outcome) for outcome in outcomes] == [Conflict]
    assert await story.decide() == {}
    await story.report(zone(0, 8), node="n1", at=2)
    await story.decide()
    assert await in_one_commit(story) == [{"a", "b", "c"}]


async def test_the_minimum_of_a_pod_group_comes_from_its_object() -> None:
    story = await world(4, 4, 4)
    gang = Gang("ns/train", api="podgroup.x-k8s.io")
    pods = [pod(name, cpus=4, gang=gang) for name in "ab"]
    await story.arrives(*pods)
    assert await story.decide() == {}
    assert await story.verdicts(pods[0]) == [
        "gang ns/train waits: its PodGroup ns/train (scheduling.x-k8s.io) does not exist"
    ]
    stream = "podgroup.x-k8s.io/ns/train"
    await story.tell(stream, PodGroupObserved("podgroup.x-k8s.io", "ns/train", 3))
    assert await story.decide() == {}
    await story.tell(stream, PodGroupObserved("podgroup.x-k8s.io", "ns/train", 2))
    await story.decide()
    assert await in_one_commit(story) == [{"a", "b"}]
    await story.tell(stream, SurroundingEnded("podgroup.x-k8s.io", "ns/train"))


async def test_a_lower_minimum_frees_the_pods_of_a_waiting_gang() -> None:
    story = await world(4)
    gang, stream = Gang("ns/train", api="podgroup"), "podgroup/ns/train"
    await story.tell(stream, PodGroupObserved("podgroup", "ns/train", 2))
    await story.arrives(*(pod(name, cpus=4, gang=gang) for name in "ab"))
    assert await story.decide() == {}
    await story.tell(stream, PodGroupObserved("podgroup", "ns/train", 1))
    await story.decide()
    assert await in_one_commit(story) == [{"a"}]


async def test_a_group_without_a_minimum_is_no_gang() -> None:
    story = await world(4)
    await story.tell("podgroup/ns/train", PodGroupObserved("podgroup", "ns/train"))
    await story.arrives(*(pod(n, cpus=4, gang=Gang("ns/train", api="podgroup")) for n in "ab"))
    await story.decide()
    assert await in_one_commit(story) == [{"a"}]


RULES: dict[str, dict[str, Any]] = {
    "none": {},
    "apart": constraints.apart(constraints.HOST),
    "port": constraints.port(8080),
}
MEMBERS = st.tuples(st.sampled_from("abc"), st.sampled_from(sorted(RULES)), st.integers(1, 9))


@settings(max_examples=25, deadline=None)
@given(st.lists(MEMBERS, min_size=2, max_size=9), st.integers(2, 4))
async def test_a_scheduler_that_tried_gangs_answers_as_a_new_one(
    members: list[tuple[str, str, int]], size: int
) -> None:
    story = await constraints.world("n1", "n2", "n3")
    for number, (gang, rule, cpus) in enumerate(members):
        words = {KOORDINATOR_NAME: gang, KOORDINATOR_MIN: str(size)}
        labels = {"app": "web"}
        event = constraints.seen(f"p{number}", labels=labels, annotations=words, **RULES[rule])
        container = msgspec.structs.replace(
            event.pod.containers[0], requests={"cpu": cpus * 1000}, limits={"cpu": cpus * 1000}
        )
        sized = msgspec.structs.replace(event.pod, containers=(container,))
        await story.arrives(sized)
    await story.decide()
    tried, new = story.cores[0], SchedulerCore(CoreConfig(cycle=story.cores[0].config.cycle))
    for envelope in await story.log.read(0):
        new.evolve(envelope, decode(envelope))
    tried.look()
    new.look()
    assert tried.columns is not None
    assert new.columns is not None
    for entry in list(tried.ledger.pods.values()):
        probe = msgspec.structs.replace(entry.pod, uid="probe", name="probe")
        for node in ("n1", "n2", "n3"):
            assert tried.columns.verdict(probe, node) == new.columns.verdict(probe, node)


PODS = st.lists(
    st.tuples(st.sampled_from(["", "g", "h"]), st.integers(1, 4)), min_size=1, max_size=9
)


@settings(max_examples=40, deadline=None)
@example([6], [("", 4), ("g", 2), ("g", 2), ("", 4)], 2)
@given(st.lists(st.integers(1, 6), min_size=1, max_size=4), PODS, st.integers(1, 4))
async def test_all_or_none_equals_a_plain_reference(
    free: list[int], wanted: list[tuple[str, int]], size: int
) -> None:
    """The reference places pods one by one on a core that knows no gangs, in the order of the
    queue, and drops pods of a gang that did not become whole."""
    pods = [
        pod(f"p{n}", cpus=cpus, gang=Gang(f"ns/{gang}", size) if gang and size > 1 else None)
        for n, (gang, cpus) in enumerate(wanted)
    ]
    story = await world(*free)
    await story.arrives(*pods)
    nodes = {
        event.uid: event.node
        for proposal in story.cores[0].decide(100)
        for draft in proposal.drafts
        if isinstance(event := draft.event, PodReserved)
    }
    assert nodes == await reference(free, pods, size)


async def reference(free: list[int], pods: list[Pod], size: int) -> dict[str, str]:
    kept = list[Pod]()
    units = [[made] for made in pods if made.gang is None]
    for name in sorted({made.gang.name for made in pods if made.gang is not None}):
        group = [made for made in pods if made.gang is not None and made.gang.name == name]
        if len(group) >= size:
            units.append(group)
    units.sort(key=lambda unit: pods.index(unit[0]))
    for unit in units:
        tried = list[Pod]()
        for made in unit:
            if len(tried) < (size if made.gang else 1):
                alone = [*kept, *tried, made]
                if len(await placed_singly(free, alone)) == len(alone):
                    tried.append(made)
        if len(tried) == (size if unit[0].gang else 1):
            kept += tried
    return await placed_singly(free, kept)


async def placed_singly(free: list[int], pods: list[Pod]) -> dict[str, str]:
    story = await world(*free)
    await story.arrives(*(msgspec.structs.replace(made, gang=None) for made in pods))
    return {p.uid: p.node for p in story.cores[0].decide(100) if p.node}


async def test_a_gang_evicts_no_pod_and_a_late_pod_of_it_may() -> None:
    story = await world(4, 4)
    low = pod("low", cpus=4)
    await story.seen_bound(low, "n1", phase="Running")
    await story.report(zone(0, 4, 0), node="n1", at=2, placements=(held("low", 0, 4),))
    pods = [member(name, size=2, priority=1000) for name in "ab"]
    await story.arrives(*pods)
    await story.decide()
    assert await story.events(PodNominated) == []
    for number, made in enumerate(pods):
        await story.tell(streams.pod(made.uid), PodObserved(made, node=f"n{number}"))
    await story.ends(pods[1])
    await story.arrives(member("c", size=2, priority=1000))
    await story.decide()
    assert [event.victims for event in await story.events(PodNominated)] == [(low.uid,)]


PAIR = [
    pod("a", container("c0", 1), container("c1", 3), gang=Gang("ns/train", 2)),
    pod("b", container("c0", 2), container("c1", 3), gang=Gang("ns/train", 2)),
]


@pytest.mark.parametrize("placements", [(), None])
async def test_a_gang_fits_a_node_whose_pods_came_and_ended_since_its_report(
    placements: tuple[()] | None,
) -> None:
    """Its kubelet is empty as in the report, so it sends no other one."""
    story = await world()
    zones = [zone(number, 3) for number in range(3)]
    await story.node()
    await story.report(*zones, placements=placements)
    gone = pod("gone", cpus=3)
    await story.arrives(gone)
    await story.decide()
    await story.ends(gone)
    await story.arrives(*PAIR)
    await story.decide()
    assert await in_one_commit(story) == [{"gone"}, {"a", "b"}]


async def test_a_gang_fits_a_node_that_booted_after_its_pods_ended() -> None:
    """When pods of an earlier boot came is not known, but a gang comes after them."""
    story = await world()
    zones = [zone(number, 3) for number in range(3)]
    await story.node()
    await story.report(*zones)
    gone = pod("gone", cpus=3)
    await story.seen_bound(gone, "n1")
    await story.ends(gone)
    await story.report(*zones, boot="boot-2", at=1)
    await story.arrives(*PAIR)
    await story.decide()
    assert await in_one_commit(story) == [{"a", "b"}]


async def test_a_pod_waits_next_to_one_that_may_have_come_before_an_unknown_end() -> None:
    story = await world()
    zones = [zone(number, 3) for number in range(3)]
    await story.node()
    await story.report(*zones)
    gone, stays = pod("gone", cpus=3), PAIR[0]
    for made in (gone, stays):
        await story.seen_bound(made, "n1")
    await story.ends(gone)
    await story.report(*zones, boot="boot-2", at=1)
    await story.arrives(waits := msgspec.structs.replace(PAIR[1], gang=None))
    assert await story.decide() == {}
    assert "undecided: ended pods still held" in (await story.verdicts(waits))[-1]
