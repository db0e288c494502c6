"""Evictions that the API server refuses: the spared victims, for how long, and the verdict
meanwhile.
"""

from __future__ import annotations

import msgspec

from shared.domain.pod import Pod
from shared.events import streams
from shared.events.binding_events import EvictRefused
from shared.events.cluster_events import PodRunning
from tests.ledger.given import container, pod
from tests.scheduler.default.story import ROOMY
from tests.scheduler.default.test_preemption import GPU, HIGH, full, low, nominations

GUARDED = "Cannot evict pod as it would violate the pod's disruption budget."


def labelled(name: str, app: str, number: int = 0) -> Pod:
    labels = {"app": app, "statefulset.kubernetes.io/pod-name": f"{app}-{number}"}
    return msgspec.structs.replace(low(name, 4), labels=labels)


async def test_where_a_budget_says_no_pods_like_the_victim_are_spared_too_and_others_asked() -> (
    None
):
    """The budget of a workload would refuse each of its pods, and every refusal would cost a
    nomination.
    """
    like = [(labelled(f"like{number}", "web", number), number // 2) for number in range(3)]
    story = await full(*like, (msgspec.structs.replace(labelled("other", "db"), priority=1), 1))
    await story.arrives(pod("high", cpus=4, priority=HIGH))
    await story.decide()
    ((_, _, (first,)),) = await nominations(story)
    await story.tell(streams.pod(first), EvictRefused(first, "uid-high", GUARDED))
    await story.decide()
    assert [victims for _, _, victims in await nominations(story)] == [(first,), ("uid-other",)]


async def test_a_budget_is_asked_again_after_a_while_without_an_event() -> None:
    """The budget may have changed, or a pod became ready. First a pod like the victim is tried,
    later the victim itself.
    """
    story = await full(
        (labelled("a", "web", 0), 0),
        (labelled("b", "web", 1), 0),
        (low("keep", 8, priority=HIGH), 1),
    )
    await story.arrives(pod("high", cpus=4, priority=HIGH))

    async def asked(now_s: float) -> list[str]:
        for _ in range(3):
            await story.append(story.cores[0], story.cores[0].decide(9, now_s))
        return [victims[0] for _, _, victims in await nominations(story)]

    (first,) = await asked(0.0)
    await story.tell(streams.pod(first), EvictRefused(first, "uid-high", GUARDED))
    assert await asked(1.0) == await asked(10.0) == [first]
    (_, second) = await asked(11.0)
    assert {first, second} == {"uid-a", "uid-b"}
    await story.tell(streams.pod(second), EvictRefused(second, "uid-high", GUARDED))
    assert await asked(12.0) == await asked(60.0) == [first, second]
    assert await asked(61.0) == [first, second, first]


async def test_once_a_pod_like_the_victim_starts_the_budget_is_asked_again_at_once() -> None:
    story = await full((labelled("a", "web"), 0), (low("keep", 8, priority=HIGH), 1))
    await story.arrives(pod("high", cpus=8, priority=HIGH))
    await story.decide()
    await story.tell(streams.pod("uid-a"), EvictRefused("uid-a", "uid-high", GUARDED))
    await story.seen_bound(labelled("other", "db"), node="n2", phase="Running")
    await story.decide()
    assert len(await nominations(story)) == 1
    await story.seen_bound(labelled("replica", "web", 1), node="n2")
    await story.tell(streams.pod("uid-replica"), PodRunning("uid-replica", "n2"))
    await story.decide()
    assert len(await nominations(story)) == 2


async def test_while_others_are_evicted_for_a_pod_its_own_claim_is_no_new_reason_to_wait() -> None:
    """Each new reason would cost an event and a condition."""
    story = await full((low("a", 4, gpus=2), 0), gpus=2)
    await story.node(allocatable={**ROOMY, "cpu": 10_000, GPU: 2})
    high = pod("high", container("c", 4, gpus=2), priority=HIGH)
    await story.arrives(high)
    await story.decide()
    assert await nominations(story) == [("uid-high", "n1", ("uid-a",))]
    assert await story.verdicts(high) == ["0/1 nodes are available: 1 Insufficient vendor.com/gpu."]
    story.cores[0].queue.wake("uid-high")
    await story.decide()
    assert len(await story.verdicts(high)) == 1
