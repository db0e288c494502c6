"""The meaning of the ledger for the next pod: races of schedulers, partially admitted pods, names
that are used twice, and more room that makes admission worse.
"""

from __future__ import annotations

from shared.domain.state_hash import state_hash
from shared.eventlog.port import Appended, Conflict
from tests.ledger.given import container, held, listed_empty, pod, zone
from tests.scheduler.default.story import Story


async def one_zone(schedulers: int = 1) -> Story:
    story = Story(schedulers)
    await story.node()
    await story.report(zone(0, 8))
    return story


class TestR1PodsBoundButStillPending:
    """Upstream's match forgets a pod that neither side counts yet; here its charge remains until a
    report covers its demand.
    """

    async def test_default_gives_the_cpus_of_a_pod_under_admission_to_no_other(self) -> None:
        story = await one_zone()
        await story.arrives(pod("a", cpus=6))
        await story.decide()
        for version, shown in ((2, ()), (3, (listed_empty("a"),))):
            await story.report(zone(0, 8), at=version, placements=shown)
            await story.arrives(pod(f"b{version}", cpus=6))
            assert await story.decide() == {}
        await story.report(zone(0, 8, 2), at=4, placements=(held("a", 0, 6),))
        await story.arrives(pod("c", cpus=2))
        assert await story.decide() == {"uid-c": "n1"}


class TestR10SeveralSchedulers:
    """Upstream's caches do not know of each other; here both schedulers fold one log and append at
    versions.
    """

    async def test_default_lets_one_of_two_schedulers_win_a_node_and_the_other_decide_again(
        self,
    ) -> None:
        story = await one_zone(schedulers=2)
        await story.arrives(pod("a", cpus=6), pod("b", cpus=6))
        first, second = story.cores
        from_first, from_second = first.decide(1), second.decide(2)[1:]
        assert [(p[0].uid, p[0].node) for p in (from_first, from_second)] == [
            ("uid-a", "n1"),
            ("uid-b", ""),
        ]
        second.queue.wake_all()
        assert isinstance((await story.append(first, from_first))[0], Appended)
        assert second.decide(5)[0].node == ""

    async def test_default_refuses_a_reservation_on_a_node_that_moved_meanwhile(self) -> None:
        story = await one_zone(schedulers=2)
        await story.arrives(pod("a", cpus=6))
        first, second = story.cores
        ahead, behind = first.decide(1), second.decide(1)
        assert isinstance((await story.append(first, ahead))[0], Appended)
        outcome = (await story.append(second, behind))[0]
        assert not isinstance(outcome, Appended)
        assert await story.reservations() == [("uid-a", "n1")]
        assert second.decide(5) == []

    async def test_default_decides_again_after_a_conflict_and_takes_the_remaining_room(
        self,
    ) -> None:
        story = await one_zone(schedulers=2)
        await story.arrives(pod("b", cpus=2))
        second = story.cores[1]
        stale = second.decide(1)
        await story.seen_bound(pod("x", cpus=6))
        await story.node(labels={"moved": "yes"})
        outcome = (await story.append(second, stale))[0]
        assert isinstance(outcome, Conflict)
        assert isinstance((await story.append(second, second.decide(1)))[0], Appended)
        assert await story.reservations() == [("uid-b", "n1")]


class TestR13SameNameAgain:
    """Placements of an earlier pod of the name confirm nothing about the new pod."""

    async def test_default_keeps_the_newcomers_charge_under_the_predecessors_listing(self) -> None:
        story = Story()
        await story.node()
        await story.report(zone(0, 8), zone(1, 8))
        old, new = pod("web-0", cpus=6), pod("web-0", cpus=6, uid="uid-new")
        await story.seen_bound(old)
        await story.report(zone(0, 8, 2), zone(1, 8), at=2, placements=(held("web-0", 0, 6),))
        await story.ends(old)
        await story.arrives(new)
        await story.decide()
        await story.report(zone(0, 8, 2), zone(1, 8), at=3, placements=(held("web-0", 0, 6),))
        await story.arrives(pod("b", cpus=6), pod("c", cpus=6))
        assert await story.decide() == {"uid-b": "n1"}


class TestRestartAndFailOver:
    """A new scheduler continues with the state of the last one."""

    async def test_default_remembers_every_charge_after_a_restart(self) -> None:
        story = await one_zone()
        await story.arrives(pod("a", cpus=6))
        await story.decide()
        restarted = Story()
        restarted.log = story.log
        await restarted.fold()
        assert state_hash(restarted.cores[0].ledger) == state_hash(story.cores[0].ledger)
        await restarted.arrives(pod("b", cpus=6))
        assert await restarted.decide() == {}


async def test_an_own_reservation_counts_before_the_log_has_answered() -> None:
    story = await one_zone()
    await story.arrives(pod("a", cpus=6), pod("b", cpus=6))
    proposals = story.cores[0].decide(2)
    assert [(each.uid, each.node) for each in proposals] == [("uid-a", "n1"), ("uid-b", "")]


async def test_several_reservations_on_one_node_in_one_batch_are_chained() -> None:
    story = await one_zone()
    await story.arrives(*(pod(name, cpus=2) for name in "abcd"))
    core = story.cores[0]
    outcomes = await story.append(core, core.decide(4))
    assert all(isinstance(outcome, Appended) for outcome in outcomes)
    assert len(outcomes) == 4
    assert story.ledger_node().free_min[0]["cpu"] == 0


async def test_more_room_can_be_worse_so_a_pod_must_be_admitted_on_every_branch() -> None:
    """Zone 0 has 8 CPUs and the GPU, zone 1 has 14 CPUs. The unconfirmed pod A of 6 CPUs is in
    either zone. Container c1 of 7 CPUs may then take zone 0, which c2 needs.
    """
    story = Story()
    await story.node()
    await story.report(zone(0, 8, 8, 1), zone(1, 14, 14))
    await story.seen_bound(pod("a", cpus=6))
    pair = pod("pair", container("c1", 7), container("c2", 2, gpus=1))
    await story.arrives(pair)
    assert await story.decide() == {}
    assert (
        "node(s) might reject the pod while other pods are unconfirmed"
        in (await story.verdicts(pair))[0]
    )


async def test_the_same_pod_passes_once_the_unsettled_one_is_proven_where_it_does_no_harm() -> None:
    story = Story()
    await story.node()
    await story.report(zone(0, 8, 8, 1), zone(1, 14, 14))
    await story.seen_bound(pod("a", cpus=6))
    await story.arrives(pod("pair", container("c1", 7), container("c2", 2, gpus=1)))
    await story.decide()
    await story.report(zone(0, 8, 2, 1), zone(1, 14, 14), at=2, placements=(held("a", 0, 6),))
    assert await story.decide() == {"uid-pair": "n1"}


async def test_a_sidecars_cpus_are_added_to_the_apps() -> None:
    story = await one_zone()
    await story.arrives(pod("a", container("s", 5, kind="sidecar"), container("c", 5)))
    assert await story.decide() == {}


async def test_an_init_containers_cpus_stay_charged_for_the_pods_life() -> None:
    story = await one_zone()
    await story.arrives(pod("a", container("i", 4, kind="init"), container("c", 3)))
    assert await story.decide() == {"uid-a": "n1"}
    await story.report(zone(0, 8, 5), at=2, placements=(held("a", 0, 3),))
    await story.arrives(pod("b", cpus=2))
    assert await story.decide() == {}


async def test_a_refusal_names_the_resource_the_zone_and_the_shortfall() -> None:
    story = await one_zone()
    await story.seen_bound(pod("x", cpus=6))
    asking = pod("a", cpus=5)
    await story.arrives(asking)
    await story.decide()
    assert await story.verdicts(asking) == [
        "0/1 nodes are available: 1 node(s) had no NUMA zone with 5 "
        "free cpu (best: 2 on n1/zone 0)."
    ]
