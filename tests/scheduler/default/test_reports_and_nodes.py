"""The nodes that take a pod at all: expired and missing reports; nodes that join, leave, reboot and
change policy; pods of other schedulers.
"""

from __future__ import annotations

import msgspec
import pytest

from shared.events import streams
from shared.events.binding_events import BindIntended, PodBound
from shared.events.cluster_events import PodEnded
from shared.events.report_events import NodeReportExpired
from shared.events.scheduling_events import ReservationWithdrawn
from tests.ledger.given import container, held, listed_empty, pod, zone
from tests.scheduler.default.story import Story, foreign


@pytest.fixture
def story() -> Story:
    return Story()


async def expire(story: Story, node: str = "n1") -> None:
    await story.tell(streams.report(node), NodeReportExpired(node, 180))


async def test_a_node_whose_report_expired_takes_no_pod_that_needs_alignment(story: Story) -> None:
    await story.node()
    await story.report(zone(0, 8))
    await expire(story)
    asking = pod("a", cpus=2)
    await story.arrives(asking)
    assert await story.decide() == {}
    assert await story.verdicts(asking) == [
        "0/1 nodes are available: 1 node(s) had an expired topology report."
    ]


async def test_the_next_report_opens_an_expired_node_and_wakes_pods_that_wait_for_it(
    story: Story,
) -> None:
    await story.node()
    await story.report(zone(0, 8))
    await expire(story)
    await story.arrives(pod("a", cpus=2))
    await story.decide()
    await story.report(zone(0, 8), at=2)
    assert await story.decide() == {"uid-a": "n1"}


async def test_an_expired_report_keeps_the_charges_that_stand_on_it(story: Story) -> None:
    await story.node()
    await story.report(zone(0, 8))
    await story.arrives(pod("a", cpus=6))
    await story.decide()
    await expire(story)
    await story.report(zone(0, 8), at=2)
    await story.arrives(pod("b", cpus=6))
    assert await story.decide() == {}


async def test_a_pod_without_exclusive_demand_may_use_an_expired_node(story: Story) -> None:
    await story.node()
    await story.report(zone(0, 8))
    await expire(story)
    burstable = msgspec.structs.replace(pod("a", cpus=2), qos="Burstable")
    await story.arrives(burstable)
    assert await story.decide() == {"uid-a": "n1"}


class TestR12FailClosed:
    """Upstream takes a failed read for "no topology" and passes; a node without a report takes
    nothing to be aligned here.
    """

    async def test_default_refuses_a_node_that_never_reported(self, story: Story) -> None:
        await story.node()
        asking = pod("a", cpus=2)
        await story.arrives(asking)
        assert await story.decide() == {}
        assert await story.verdicts(asking) == [
            "0/1 nodes are available: 1 node(s) had no topology report."
        ]

    async def test_passing_such_nodes_is_a_choice_that_must_be_made(self) -> None:
        story = Story(on_missing_report="pass")
        await story.node()
        await story.arrives(pod("a", cpus=2))
        assert await story.decide() == {"uid-a": "n1"}


class TestR8NodesThatComeAndGo:
    """The upstream plugin lists objects once at start. Here a node counts from its first event, and
    is removed with its last.
    """

    async def test_default_uses_a_node_that_appears_after_the_start(self, story: Story) -> None:
        await story.arrives(pod("a", cpus=6), pod("b", cpus=6))
        assert await story.decide() == {}
        await story.node()
        await story.report(zone(0, 8))
        assert await story.decide() == {"uid-a": "n1"}

    async def test_default_sends_nothing_to_a_node_that_vanished(self, story: Story) -> None:
        await story.node()
        await story.report(zone(0, 8))
        await story.node_goes()
        await story.arrives(pod("a", cpus=2))
        assert await story.decide() == {}

    async def test_default_waits_for_the_end_of_the_old_machines_pods_when_a_node_comes_back(
        self, story: Story
    ) -> None:
        await story.node()
        await story.report(zone(0, 8))
        first = pod("a", cpus=6)
        await story.arrives(first)
        await story.decide()
        await story.tell("pod/uid-a", PodBound("uid-a", "n1"))
        await story.node(uid="uid-second")
        await story.report(zone(0, 8), boot="boot-2")
        await story.arrives(pod("b", cpus=6))
        assert await story.decide() == {}
        await story.ends(first)
        assert await story.decide() == {"uid-b": "n1"}

    async def test_default_takes_a_reservation_back_when_its_node_goes_before_the_binding(
        self, story: Story
    ) -> None:
        await story.node()
        await story.report(zone(0, 8))
        await story.arrives(pod("a", cpus=6))
        await story.decide()
        await story.node("n2")
        await story.report(zone(0, 8), node="n2")
        await story.node_goes()
        assert await story.decide() == {"uid-a": "n2"}
        assert [event.cause for event in await story.events(ReservationWithdrawn)] == ["node_ended"]

    async def test_default_takes_a_reservation_back_when_another_node_has_come_in_its_nodes_place(
        self, story: Story
    ) -> None:
        """The node was replaced while the binder was away. If the pod were bound to the new node,
        its selector would not match.
        """
        await story.node(labels={"disk": "fast"})
        await story.report(zone(0, 8))
        made = pod("a", cpus=6)
        asks = msgspec.structs.replace(made.constraints, node_selector={"disk": "fast"})
        await story.arrives(msgspec.structs.replace(made, constraints=asks))
        assert await story.decide() == {"uid-a": "n1"}
        await story.node_goes()
        await story.node(uid="uid-second")
        await story.report(zone(0, 8), boot="boot-2")
        assert await story.decide() == {}
        assert [event.cause for event in await story.events(ReservationWithdrawn)] == ["node_ended"]
        await story.node(uid="uid-second", labels={"disk": "fast"})
        assert await story.decide() == {"uid-a": "n1"}

    async def test_default_keeps_a_reservation_on_a_node_that_only_changes(
        self, story: Story
    ) -> None:
        await story.node()
        await story.report(zone(0, 8))
        await story.arrives(pod("a", cpus=6))
        await story.decide()
        await story.node(labels={"disk": "fast"})
        assert await story.decide() == {}
        assert await story.events(ReservationWithdrawn) == []

    async def test_default_leaves_an_intended_binding_to_the_api_server_when_its_node_goes(
        self, story: Story
    ) -> None:
        await story.node()
        await story.report(zone(0, 8))
        await story.arrives(pod("a", cpus=6))
        await story.decide()
        await story.tell("pod/uid-a", BindIntended("uid-a", "ns", "a", "n1", 1))
        await story.node_goes()
        assert await story.decide() == {}
        assert await story.events(ReservationWithdrawn) == []
        assert list(story.ledger_node().charges) == ["uid-a"]


async def test_after_a_reboot_a_proven_pod_may_stand_in_every_zone_again(story: Story) -> None:
    await story.node()
    await story.report(zone(0, 8), zone(1, 8))
    await story.arrives(pod("a", cpus=6))
    await story.decide()
    await story.report(zone(0, 8, 2), zone(1, 8), at=2, placements=(held("a", 0, 6),))
    await story.report(zone(0, 8), zone(1, 8), at=1, boot="boot-2", placements=(listed_empty("a"),))
    await story.arrives(pod("b", cpus=6), pod("c", cpus=6))
    assert await story.decide() == {"uid-b": "n1"}


async def test_a_change_of_policy_is_judged_by_the_new_policy_at_once(story: Story) -> None:
    await story.node()
    await story.report(zone(0, 8), zone(1, 8), policy="best-effort")
    wide = pod("a", cpus=12)
    await story.report(zone(0, 8), zone(1, 8), at=2)
    await story.arrives(wide)
    assert await story.decide() == {}
    await story.report(zone(0, 8), zone(1, 8), at=3, policy="best-effort")
    assert await story.decide() == {"uid-a": "n1"}


async def test_a_change_of_scope_keeps_the_charges_of_pods_that_no_report_shows_yet(
    story: Story,
) -> None:
    await story.node()
    await story.report(zone(0, 8))
    await story.arrives(pod("a", cpus=6))
    await story.decide()
    await story.report(zone(0, 8), at=2, scope="pod")
    await story.arrives(pod("b", cpus=6))
    assert await story.decide() == {}


class TestOtherPoliciesAreJudged:
    """Upstream passes every node that is not single-numa-node; a restricted kubelet then rejects
    the pod.
    """

    async def test_default_refuses_a_restricted_node_that_would_reject_the_pod(
        self, story: Story
    ) -> None:
        await story.node()
        await story.report(zone(0, 8, 4), zone(1, 8, 4), policy="restricted")
        await story.arrives(pod("a", cpus=6))
        assert await story.decide() == {}


async def test_a_foreign_pod_is_charged_from_the_event_that_shows_it_bound(story: Story) -> None:
    await story.node()
    await story.report(zone(0, 8), zone(1, 8, 2))
    await story.seen_bound(foreign(pod("f", cpus=6)))
    await story.arrives(pod("a", cpus=6))
    assert await story.decide() == {}


async def test_a_foreign_pod_that_only_waits_is_not_decided(story: Story) -> None:
    await story.node()
    await story.report(zone(0, 8))
    await story.arrives(foreign(pod("f", cpus=6)))
    assert await story.decide() == {}
    assert await story.reservations() == []


async def test_a_foreign_pods_heartbeats_charge_it_once_and_close_nothing(story: Story) -> None:
    await story.node()
    await story.report(zone(0, 8))
    for version in ("1", "2", "3"):
        await story.seen_bound(foreign(pod("f", cpus=2)), phase="Running", resource_version=version)
    await story.arrives(pod("a", cpus=6))
    assert await story.decide() == {"uid-a": "n1"}


async def test_a_static_pod_is_charged_and_never_queued(story: Story) -> None:
    await story.node()
    await story.report(zone(0, 8))
    await story.seen_bound(pod("etcd", cpus=4), static=True)
    await story.arrives(pod("a", cpus=6), pod("b", cpus=4))
    assert await story.decide() == {"uid-b": "n1"}


async def test_a_pod_bound_by_another_client_while_it_waited_is_not_reserved_again(
    story: Story,
) -> None:
    await story.node()
    await story.report(zone(0, 8))
    waiting = pod("a", cpus=2)
    await story.arrives(waiting)
    await story.seen_bound(waiting)
    assert await story.decide() == {}
    assert story.ledger_node().charges.keys() == {"uid-a"}


async def test_a_rejected_pods_charge_goes_with_the_event_of_its_rejection(story: Story) -> None:
    await story.node()
    await story.report(zone(0, 8))
    first = pod("a", cpus=6)
    await story.arrives(first, pod("b", cpus=5))
    assert await story.decide() == {"uid-a": "n1"}
    await story.tell(
        streams.pod(first.uid), PodEnded(first.uid, "rejected", "n1", "TopologyAffinityError")
    )
    assert await story.decide() == {"uid-b": "n1"}


async def test_zones_that_share_an_id_are_named_as_the_reason_and_take_nothing(
    story: Story,
) -> None:
    await story.node()
    await story.report(zone(0, 8), zone(0, 8))
    asking = pod("a", cpus=2)
    await story.arrives(asking)
    assert await story.decide() == {}
    assert "reported twice" in str(await story.verdicts(asking)) or "malformed" in str(
        await story.verdicts(asking)
    )


async def test_sparse_zone_ids_are_as_good_as_any(story: Story) -> None:
    await story.node()
    await story.report(zone(3, 2), zone(64, 8))
    await story.arrives(pod("a", cpus=6))
    assert await story.decide() == {"uid-a": "n1"}
    assert story.ledger_node().charges["uid-a"].zones == {64: {"cpu": 6000}}


async def test_a_device_that_no_zone_lists_refuses_nothing_but_the_node(story: Story) -> None:
    await story.node(allocatable={"cpu": 64_000, "memory": 2**38, "pods": 110})
    await story.report(zone(0, 8))
    asking = pod("a", container("c", 2, gpus=1))
    await story.arrives(asking)
    assert await story.decide() == {}
    assert "vendor.com/gpu" in (await story.verdicts(asking))[0]
