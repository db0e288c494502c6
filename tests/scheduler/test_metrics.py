"""The metrics of the deciding loop: refusals over budget, excluded nodes, and rejections of
reserved pods by kubelets.
"""

from __future__ import annotations

from typing import cast

import msgspec
import pytest

from services.scheduler.core import CoreConfig, SchedulerCore
from services.scheduler.extender.settings import ExtenderSettings
from services.scheduler.handlers import Decider
from services.scheduler.queue.shard import Shard
from services.scheduler.settings import SchedulerSettings, chosen
from shared.domain.pod import Pod
from shared.eventlog.port import Lease
from shared.events import streams
from shared.events.catalog import Event
from shared.events.cluster_events import PodEnded, PodObserved
from shared.events.scheduling_events import NodeCharged, PodReserved
from shared.runtime.clock import SYSTEM_CLOCK
from shared.runtime.lent_lease import LentLease
from shared.runtime.projector import Fold, Projector
from shared.telemetry import instruments, names
from shared.telemetry.declare import Metric
from tests.ledger.given import pod
from tests.runtime.helpers import QUICK, running, until
from tests.scheduler.cycle_worlds import World
from tests.scheduler.test_cycle_last_resort import FEW, asks, node_with
from tests.scheduler.test_decider import Scene, fold_all

LEASE = Lease("scheduler/topolog/0", "s", 1)
WRONG = "TopologyAffinityError"


class Counted:
    """The increase of a counter since the test began."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric
        self._before = dict(instruments._values_of(metric).values)

    def by(self, *labels: str) -> float:
        return instruments._values_of(self._metric).values.get(labels, 0) - self._before.get(
            labels, 0
        )


@pytest.fixture
def rejections() -> Counted:
    return Counted(names.REJECTED)


class Told(World):
    """A world that keeps its events, for a log."""

    def __init__(self) -> None:
        super().__init__(FEW)
        self.events: list[tuple[str, Event]] = []

    def fold(self, stream: str, event: object) -> None:
        self.events.append((stream, cast(Event, event)))
        super().fold(stream, event)


async def test_a_refusal_over_budget_is_counted() -> None:
    scene, world, over = Scene(), Told(), Counted(names.OVER_BUDGET)
    node_with(world, "n1", before=(1, 1, 1, 1))
    for stream, event in world.events:
        await scene.tell(stream, event)
    core = SchedulerCore(CoreConfig(cycle=FEW))
    await fold_all(scene, core)
    await Decider(scene.log, LentLease(), SYSTEM_CLOCK)._decide(core, LEASE)
    assert over.by() == 0
    late = msgspec.structs.replace(asks("late", 6), scheduler_name="topolog")
    await scene.tell(streams.pod(late.uid), PodObserved(late))
    await fold_all(scene, core)
    await Decider(scene.log, LentLease(), SYSTEM_CLOCK)._decide(core, LEASE)
    assert core.counters.refused == 1
    assert over.by() == 1


async def test_a_node_that_is_set_aside_is_counted_by_its_cause() -> None:
    scene, aside = Scene(), Counted(names.EXCLUSIONS)
    await scene.node("n1")
    core, decider = SchedulerCore(CoreConfig()), Decider(scene.log, LentLease(), SYSTEM_CLOCK)
    await reserved(scene, core, pod("a", cpus=1))
    await scene.tell("pod/uid-a", PodEnded("uid-a", "rejected", "n1", WRONG, "no"))
    await fold_all(scene, core)
    await decider._decide(core, LEASE)
    assert (aside.by("rejected"), aside.by("denied")) == (1, 0)


async def reserved(scene: Scene, core: SchedulerCore, made: Pod) -> None:
    """Observe the pod and append its reservation."""
    for stream, event in (
        (streams.pod(made.uid), PodObserved(made)),
        (streams.pod(made.uid), PodReserved(made.uid, "n1")),
        (streams.node("n1"), NodeCharged("n1", made.uid)),
    ):
        await scene.tell(stream, event)
    await fold_all(scene, core)


async def ended(
    core: SchedulerCore, *pods: Pod, is_reserved: bool = True, **said: str
) -> list[tuple[str, str]]:
    """(uid, reason) of the rejections that the core notes once these pods have ended on their
    node.
    """
    scene = Scene()
    await scene.node("n1")
    for ended_pod in pods:
        if is_reserved:
            await reserved(scene, core, ended_pod)
        else:
            await scene.tell(streams.pod(ended_pod.uid), PodObserved(ended_pod, node="n1"))
        end = {"cause": "rejected", "node": "n1", "reason": WRONG, **said}
        await scene.tell(streams.pod(ended_pod.uid), PodEnded(ended_pod.uid, **end))  # type: ignore[arg-type]
        await scene.tell(streams.pod(ended_pod.uid), PodEnded(ended_pod.uid, **end))  # type: ignore[arg-type]
    await fold_all(scene, core)
    return [(each.uid, each.reason) for each in core.rejections.take()]


async def test_each_pod_that_a_kubelet_rejected_counts_once_and_other_ends_do_not() -> None:
    first, two = pod("a", cpus=1), pod("b", cpus=1)
    foreign = msgspec.structs.replace(pod("f", cpus=1), scheduler_name="default-scheduler")
    assert await ended(SchedulerCore(CoreConfig()), first, two) == [
        ("uid-a", WRONG),
        ("uid-b", WRONG),
    ]
    assert await ended(SchedulerCore(CoreConfig()), first, reason="OutOfcpu") == [
        ("uid-a", "other")
    ]
    assert await ended(SchedulerCore(CoreConfig()), first, cause="failed") == []
    assert await ended(SchedulerCore(CoreConfig()), first, is_reserved=False) == [], "bound by hand"
    assert await ended(SchedulerCore(CoreConfig()), foreign) == [], (
        "reserved by a scheduler of another name"
    )


async def test_pods_of_an_extender_count_and_those_of_other_shards_and_of_a_shadow_do_not() -> None:
    assert chosen(SchedulerSettings()).core.asked_by == ()
    assert chosen(SchedulerSettings(extender=ExtenderSettings(port=1))).core.asked_by == (
        "default-scheduler",
    )
    asked = msgspec.structs.replace(pod("f", cpus=1), scheduler_name="default-scheduler")
    assert await ended(SchedulerCore(CoreConfig(asked_by=("default-scheduler",))), asked) == [
        ("uid-f", WRONG)
    ]
    assert await ended(SchedulerCore(CoreConfig(shadow=True)), pod("a", cpus=1)) == []
    members = ("scheduler/topolog/0", "scheduler/topolog/1")
    counted = []
    for member in members:
        core = SchedulerCore(CoreConfig())
        core.take_shard(Shard(members, member))
        counted += await ended(core, *(pod(f"p{number}", cpus=1) for number in range(4)))
    assert sorted(uid for uid, _ in counted) == [f"uid-p{number}" for number in range(4)]


@pytest.mark.parametrize("before_it_began", [False, True])
async def test_a_rejection_is_counted_when_it_happens_and_not_when_the_log_is_replayed(
    before_it_began: bool, rejections: Counted
) -> None:
    scene = Scene()
    await scene.node("n1")
    core, decider = SchedulerCore(CoreConfig()), Decider(scene.log, LentLease(), SYSTEM_CLOCK)
    fold: Fold[SchedulerCore] = Fold(
        lambda: core, lambda state, envelope, event: state.evolve(envelope, event)
    )
    await reserved(scene, SchedulerCore(CoreConfig()), pod("a", cpus=1))
    end = PodEnded("uid-a", "rejected", "n1", WRONG)
    if before_it_began:
        await scene.tell("pod/uid-a", end)
    projector = Projector(
        "s", scene.log, fold, after=decider.folded, on_reset=decider.reset, options=QUICK
    )
    async with running(projector.run(), decider.run(projector)):
        await projector.wait_live()
        if not before_it_began:
            assert rejections.by(WRONG) == 0
            await scene.tell("pod/uid-a", end)
            await until(lambda: rejections.by(WRONG) > 0)
        await scene.tell("pod/uid-b", PodObserved(pod("b", cpus=1)))
        await until(lambda: "uid-b" in core.ledger.pods)
    assert rejections.by(WRONG) == (0 if before_it_began else 1)
