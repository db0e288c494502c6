"""Victims that kube-scheduler offers are judged next to own reservations, even if the log does not
hold these yet.
"""

from __future__ import annotations

import msgspec

from services.scheduler.explain.placing import ColumnarPlacing
from services.scheduler.extender.verbs import preempted
from services.scheduler.extender.wire import Offer
from shared.domain.pod import Pod
from shared.events import streams
from shared.events.scheduling_events import NodeCharged, PodReserved
from tests.ledger.given import held, pod, zone
from tests.scheduler.default.story import Story, foreign


async def beside_own(story: Story, reserved_pod: Pod, *running: tuple[Pod, int]) -> ColumnarPlacing:
    """Two zones of 8 CPUs with these pods on 4 each; an own reservation was decided and is not
    appended yet.
    """
    await story.node()
    for made, _ in running:
        await story.seen_bound(made, phase="Running")
    free = [8 - 4 * sum(at == index for _, at in running) for index in (0, 1)]
    placements = tuple(held(made.name, at, 4) for made, at in running)
    await story.report(zone(0, 8, free[0]), zone(1, 8, free[1]), placements=placements)
    await story.arrives(reserved_pod)
    core = story.cores[0]
    assert [each.node for each in core.decide(10) if each.uid == reserved_pod.uid] == ["n1"]
    assert isinstance(core.cluster, ColumnarPlacing)
    return core.cluster


def low(name: str, priority: int = 0) -> Pod:
    return foreign(pod(name, cpus=4, priority=priority))


def asking(cpus: int) -> Pod:
    return foreign(pod("high", cpus=cpus, priority=1000))


async def test_room_that_an_own_reservation_takes_is_no_room_for_the_pod() -> None:
    """Whole zone 0 would be free without `a`, but the own reservation may come there."""
    story = Story()
    placing = await beside_own(
        story, pod("own", cpus=4), (low("a"), 0), (low("b", priority=2000), 1)
    )
    pods = story.cores[0].ledger.pods
    assert preempted(placing, pods, asking(8), {"n1": Offer(("uid-a",))}) == {}
    assert preempted(placing, pods, asking(4), {"n1": Offer(("uid-a",))}) == {
        "n1": Offer(("uid-a",))
    }


async def test_an_offer_is_widened_by_what_an_own_reservation_takes() -> None:
    """Without the pending own reservation the pod would fit zone 0 without any eviction."""
    story = Story()
    placing = await beside_own(story, pod("own", cpus=8), (low("b"), 1))
    outcome = preempted(placing, story.cores[0].ledger.pods, asking(8), {"n1": Offer(())})
    assert outcome == {"n1": Offer(("uid-b",))}


async def test_once_the_log_holds_the_reservation_the_answer_is_the_same() -> None:
    story = Story()
    placing = await beside_own(story, pod("own", cpus=8), (low("b"), 1))
    core = story.cores[0]
    first_answer = preempted(placing, core.ledger.pods, asking(8), {"n1": Offer(())})
    await story.tell(streams.pod("uid-own"), PodReserved("uid-own", "n1", 1, core.ledger.position))
    await story.tell(streams.node("n1"), NodeCharged("n1", "uid-own", {}))
    core.decide(0)
    assert not placing.view.nodes["n1"].assumed
    assert (
        preempted(placing, core.ledger.pods, asking(8), {"n1": Offer(())})
        == first_answer
        == {"n1": Offer(("uid-b",))}
    )


async def full_zone(story: Story, *running: Pod) -> ColumnarPlacing:
    """Two zones of 12 CPUs; these pods hold 4 each in zone 0, one of priority 2000 fills zone 1."""
    await story.node()
    big = foreign(pod("big", cpus=12, priority=2000))
    for made in (*running, big):
        await story.seen_bound(made, phase="Running")
    placements = (*(held(made.name, 0, 4) for made in running), held("big", 1, 12))
    await story.report(zone(0, 12, 12 - 4 * len(running)), zone(1, 12, 0), placements=placements)
    core = story.cores[0]
    core.decide(0)
    assert isinstance(core.cluster, ColumnarPlacing)
    return core.cluster


async def test_offered_victims_that_are_not_needed_stay() -> None:
    """kube-scheduler offers three; two free the zone."""
    story = Story()
    placing = await full_zone(story, low("a"), low("b"), low("c"))
    offer = Offer(("uid-a", "uid-b", "uid-c"), violations=3)
    outcome = preempted(placing, story.cores[0].ledger.pods, asking(8), {"n1": offer})["n1"]
    assert len(outcome.uids) == 2
    assert outcome.violations == 2


async def test_the_higher_priority_is_spared_first() -> None:
    story = Story()
    placing = await full_zone(story, low("a", priority=5), low("b"), low("c"))
    offer = Offer(("uid-a", "uid-b", "uid-c"))
    outcome = preempted(placing, story.cores[0].ledger.pods, asking(8), {"n1": offer})["n1"]
    assert outcome.uids == ("uid-b", "uid-c")


async def test_victims_that_constraints_may_need_all_stay_in_the_offer() -> None:
    """Here only zones are judged: which of them is in the way of a host port is
    kube-scheduler's.
    """
    story = Story()
    placing = await full_zone(story, low("a"), low("b"), low("c"))
    offer = Offer(("uid-a", "uid-b", "uid-c"))
    constraints = msgspec.structs.replace(asking(8).constraints, kept={"hostPorts": [["TCP", 80]]})
    made = msgspec.structs.replace(asking(8), constraints=constraints)
    outcome = preempted(placing, story.cores[0].ledger.pods, made, {"n1": offer})["n1"]
    assert outcome.uids == offer.uids
