"""Several schedulers: each pod is one's, a member that goes leaves its pods to the others, and two
seldom meet on one node.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from services.scheduler.core import CoreConfig, SchedulerCore
from services.scheduler.queue.shard import Shard, shard_of
from services.scheduler.score.preferences import NOT_PREFERRED
from shared.events.codec import decode
from shared.events.scheduling_events import PodReserved
from tests.scheduler.test_decider import Scene

MEMBERS = tuple(f"scheduler/topolog/{place}" for place in range(4))


def shares(*members: str) -> list[Shard]:
    return [Shard(members, member) for member in members]


@given(st.text(max_size=40), st.integers(2, 4))
def test_every_key_is_one_members_and_stays_when_another_goes(key: str, count: int) -> None:
    members = MEMBERS[:count]
    (owner,) = [share.own for share in shares(*members) if share.has(key)]
    for gone in set(members) - {owner}:
        assert Shard(tuple(each for each in members if each != gone), owner).has(key)


def test_keys_are_spread_evenly() -> None:
    counts = [
        sum(share.has(f"uid-{number}") for number in range(4000)) for share in shares(*MEMBERS)
    ]
    assert sum(counts) == 4000
    assert max(counts) - min(counts) < 300


def test_a_lone_member_has_everything_and_writes_nothing() -> None:
    for alone in (Shard(), Shard(MEMBERS[:1], MEMBERS[0])):
        assert alone.has("anything")
        assert alone.mark() == ""


def test_a_share_is_read_back_from_what_a_decision_names() -> None:
    share = Shard((MEMBERS[0], MEMBERS[2]), MEMBERS[2])
    assert shard_of(f"0123456789abcdef{share.mark()}", MEMBERS[2]) == share
    assert shard_of("0123456789abcdef", MEMBERS[2]).alone


async def scene(nodes: int, pods: int, cpus: int = 1) -> tuple[Scene, list[SchedulerCore]]:
    """Two schedulers that have folded the same."""
    made = Scene()
    for number in range(nodes):
        await made.node(f"n{number}")
    await made.pods(pods, cpus)
    cores = [SchedulerCore(CoreConfig()) for _ in range(2)]
    for envelope in await made.log.read(0, 10_000):
        for core in cores:
            core.evolve(envelope, decode(envelope))
    return made, cores


def reserved(core: SchedulerCore) -> dict[str, str]:
    drafts = [draft.event for proposal in core.decide(1000) for draft in proposal.drafts]
    return {event.uid: event.node for event in drafts if isinstance(event, PodReserved)}


async def test_two_schedulers_decide_every_pod_once_on_nodes_apart() -> None:
    _, cores = await scene(nodes=40, pods=60)
    first, second = made = [
        decide_as(core, share) for core, share in zip(cores, shares(*MEMBERS[:2]), strict=True)
    ]
    assert first.keys() & second.keys() == set()
    assert len(first) + len(second) == 60
    assert set(first.values()) & set(second.values()) == set()
    for share, decided in zip(shares(*MEMBERS[:2]), made, strict=True):
        assert all(share.has(uid) for uid in decided)
        assert all(share.has(node) for node in decided.values())


def decide_as(core: SchedulerCore, share: Shard) -> dict[str, str]:
    core.take_shard(share)
    return reserved(core)


async def test_pods_that_come_later_are_shared_out_apart_from_others_too() -> None:
    made, cores = await scene(nodes=20, pods=0)
    both = shares(*MEMBERS[:2])
    for core, share in zip(cores, both, strict=True):
        core.take_shard(share)
    await made.pods(40)
    for core in cores:
        for envelope in await made.log.read(core.ledger.position, 10_000):
            core.evolve(envelope, decode(envelope))
    first, second = (reserved(core) for core in cores)
    assert first.keys() & second.keys() == set()
    assert first.keys() | second.keys() == {f"uid-p{number}" for number in range(40)}


async def test_a_member_whose_nodes_are_full_takes_the_others() -> None:
    _, (core, _) = await scene(nodes=6, pods=24, cpus=4)
    share = Shard(MEMBERS[:2], MEMBERS[0])
    made = decide_as(core, share)
    own_share = sum(share.has(uid) for uid in (f"uid-p{number}" for number in range(24)))
    assert len(made) == min(own_share, 12)
    assert any(not share.has(node) for node in made.values())


async def test_the_pods_of_a_member_that_is_gone_are_decided_by_the_others() -> None:
    _, (core, _) = await scene(nodes=20, pods=20)
    by_both = decide_as(core, Shard(MEMBERS[:2], MEMBERS[0]))
    by_one = decide_as(core, Shard(MEMBERS[:1], MEMBERS[0]))
    assert 0 < len(by_both) < 20
    assert by_both.keys() | by_one.keys() == {f"uid-p{number}" for number in range(20)}
    assert by_both.keys() & by_one.keys() == set()


async def test_pods_that_wait_are_handed_over_and_back() -> None:
    _, (core, _) = await scene(nodes=1, pods=30, cpus=9)
    both = Shard(MEMBERS[:2], MEMBERS[0])
    core.take_shard(both)
    core.decide(1000)
    mine = len(core.queue)
    core.take_shard(Shard(MEMBERS[:1], MEMBERS[0]))
    assert len(core.queue) == 30
    core.take_shard(both)
    assert len(core.queue) == mine < 30


async def test_one_scheduler_decides_as_if_there_were_no_sharing() -> None:
    _, (plain, member) = await scene(nodes=10, pods=20)
    member.take_shard(Shard(MEMBERS[:1], MEMBERS[0]))
    alike = [
        [(proposal.commit_id, proposal.drafts) for proposal in core.decide(1000)]
        for core in (plain, member)
    ]
    assert alike[0] == alike[1]


def test_a_home_is_worth_more_than_any_score() -> None:
    assert NOT_PREFERRED < -101
