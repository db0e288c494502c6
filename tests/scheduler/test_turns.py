"""A turn of the deciding loop ends in time: no flood of pods delays a feasible one."""

from __future__ import annotations

import msgspec
import pytest

from services.scheduler.core import CoreConfig, SchedulerCore
from services.scheduler.filter.pod_manifest import TOO_MANY_RULES, read_pod
from services.scheduler.handlers import TURN_S, Decider
from shared.domain.pod import Pod
from shared.eventlog.port import Lease
from shared.events import streams
from shared.events.cluster_events import PodObserved
from shared.events.scheduling_events import (
    PodVerdictChanged,
)
from shared.runtime.lent_lease import LentLease
from tests.ledger.given import container, pod
from tests.scheduler.test_decider import Scene, Slow, fold_all, scene

__all__ = ["scene"]


def infeasible(number: int, namespace: str = "ns") -> Pod:
    """Return an infeasible pod with its own pod class."""
    made = pod(f"x{number}", container("c", cpus=10 + number))
    return msgspec.structs.replace(made, namespace=namespace)


async def reserved_after_s(scene: Scene, core: Slow, uid: str) -> float:
    """Run the deciding loop until the pod is reserved, and return the time in seconds. No turn may
    take long.
    """
    decider, lease = Decider(scene.log, LentLease(), core), Lease("scheduler/topolog/0", "s", 1)
    began_s = core.now_s
    while True:
        await fold_all(scene, core)
        turn_s = core.now_s
        await decider._decide(core, lease)
        assert core.now_s - turn_s < TURN_S + 0.05
        if uid in [event.uid for event in await scene._reserved()]:
            return core.now_s - began_s


@pytest.mark.parametrize("namespace", ["ns", "another"])
async def test_a_feasible_pod_waits_two_seconds_at_most_behind_thousands_of_infeasible_classes(
    scene: Scene, namespace: str
) -> None:
    """This also holds for a pod in the namespace of the flood."""
    await scene.node("n1")
    core = Slow(CoreConfig())
    await fold_all(scene, core)
    for number in range(4000):
        made = infeasible(number)
        await scene.tell(streams.pod(made.uid), PodObserved(made))
    small = msgspec.structs.replace(pod("small", cpus=1), namespace=namespace)
    await scene.tell(streams.pod(small.uid), PodObserved(small))
    assert await reserved_after_s(scene, core, small.uid) < 2.0


async def test_waking_thousands_of_classes_takes_many_turns_and_delays_no_new_pod(
    scene: Scene,
) -> None:
    await scene.node("n1")
    core = Slow(CoreConfig())
    for number in range(2000):
        made = infeasible(number)
        await scene.tell(streams.pod(made.uid), PodObserved(made))
    await fold_all(scene, core)
    while core.has_work():
        core.decide(1000)
    await scene.node("n2")
    small = pod("small", cpus=1)
    await scene.tell(streams.pod(small.uid), PodObserved(small))
    assert await reserved_after_s(scene, core, small.uid) < 2.0
    assert core._waking.classes, "the round goes on in later turns"


async def test_every_refusal_is_explained_though_others_go_first(scene: Scene) -> None:
    await scene.node("n1")
    core = Slow(CoreConfig())
    for number in range(60):
        made = infeasible(number)
        await scene.tell(streams.pod(made.uid), PodObserved(made))
    decider, lease = Decider(scene.log, LentLease(), core), Lease("scheduler/topolog/0", "s", 1)
    for _ in range(20):
        await fold_all(scene, core)
        await decider._decide(core, lease)
    assert not core.has_work()
    assert all(entry.verdict for entry in core.ledger.pods.values())


async def test_pods_with_thousands_of_terms_wait_with_a_reason_and_delay_no_other_pod(
    scene: Scene,
) -> None:
    await scene.node("n1")
    core = Slow(CoreConfig())
    terms = [
        {
            "labelSelector": {"matchLabels": {"a": f"b{number}"}},
            "topologyKey": "kubernetes.io/hostname",
        }
        for number in range(6000)
    ]
    resources = {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}
    manifest = {
        "metadata": {"uid": "u", "name": "x", "namespace": "ns"},
        "spec": {
            "schedulerName": "topolog",
            "containers": [{"name": "c", "resources": resources}],
            "affinity": {
                "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}
            },
        },
    }
    read, problem = read_pod(manifest)
    assert [part.requests["cpu"] for part in read.containers] == [1000], "a running one is charged"
    await scene.tell(streams.pod("u"), PodObserved(read, problem=problem))
    await fold_all(scene, core)
    core.decide(10)
    assert core.now_s < 0.01
    messages = [
        draft.event.message
        for proposal in SchedulerCore(CoreConfig(), core.folded).decide(10)
        for draft in proposal.drafts
        if isinstance(draft.event, PodVerdictChanged)
    ]
    assert messages == [f"pod cannot be scheduled: {TOO_MANY_RULES}"]
