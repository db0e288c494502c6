"""`topolog plan defragment --apply` with the simulated API server, its controllers, an observer, a
scheduler and a binder with its evictor, on nodes whose zones Topolog chooses.

n1 has two pods of 8 CPUs in two zones of 15. n2 has 9 CPUs free in one zone. A pod of 12 CPUs needs
a move.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from typing import Any

import msgspec
import pytest

from services.binder import core as binder_core
from services.binder import evictor, handlers
from services.binder.core import BinderState
from services.binder.evictor import Evictor
from services.binder.handlers import Binder
from services.binder.settings import BinderSettings
from services.cli import plan
from services.cli.plan import Asked
from services.replay.deciding_state import followed_at
from services.scheduler.core import CoreConfig, SchedulerCore
from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.watch.event_writer import ROLE as OBSERVER
from services.scheduler.watch.observer import RELIST_S, Observer
from services.simulator.controllers import Controllers
from services.upkeep.moving import Mover
from shared.domain.booking import Owner
from shared.eventlog.memory import MemoryEventLog
from shared.eventlog.port import Commit, Draft, Lease, Outcome
from shared.events import streams
from shared.events.binding_events import EvictIntended
from shared.events.catalog import Event
from shared.events.codec import decode
from shared.events.report_events import NodeReported
from shared.events.scheduling_events import PodNominated
from shared.kube.client import KubeClient
from shared.runtime.clock import SYSTEM_CLOCK
from shared.runtime.projector import Fold, Folded, Projector
from tests.runtime.helpers import QUICK, running, until
from tests.scheduler.owned.given import owned_report
from tests.simulator.conftest import api  # noqa: F401 - fixture
from tests.simulator.contract import Api

SETTINGS = {"TOPOLOG_CYCLE_DEFAULT_POLICY": "single-numa-node"}
ALLOCATABLE = {"cpu": "30", "memory": "124Gi", "pods": "110"}
ASKED = Asked("cpu=12,memory=1Gi", 1, 0, "", Owner("apirec", labels={"app": "big"}), "room",
              3_600_000_000, 20.0)  # fmt: skip


@pytest.fixture(autouse=True)
def _settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evictor, "IDLE_S", 0.02)
    monkeypatch.setattr(handlers, "IDLE_S", 0.02)


class Cluster:
    """The processes of an installation without a bus; reports are told."""

    def __init__(self, api: Api) -> None:  # noqa: F811, RUF100
        self.api, self.log = api, MemoryEventLog("moving")
        self.kube = KubeClient(api.server.url)
        self.asked = msgspec.structs.replace(ASKED, kubeconfig=api.server.url, settings=SETTINGS)
        self.core = SchedulerCore(CoreConfig(cycle=CycleConfig(default_policy="single-numa-node")))

    async def node(self, name: str) -> None:
        node = {"metadata": {"name": name, "labels": {"name": name}}}
        self.api.store.create("nodes", node)
        status = {"allocatable": ALLOCATABLE, "capacity": ALLOCATABLE}
        self.api.store.patch_status("nodes", name, "", status)
        self.api.store.patch("nodes", name, "", {"spec": {"taints": None}})  # It is ready.
        await self.tell(streams.report(name), NodeReported(owned_report(name)))

    async def tell(self, stream: str, event: Event) -> None:
        commit_id = f"told/{await self.log.head()}"
        await self.log.append([Commit(commit_id, "test", 0, 0, (Draft(stream, event),))])

    def replicas(self, name: str, cpus: int, replicas: int = 1, **spec: Any) -> None:
        amounts = {"cpu": str(cpus), "memory": "1Gi"}
        container = {"name": "c", "image": "x", "resources": {"limits": amounts}}
        pod = {"schedulerName": "topolog", "terminationGracePeriodSeconds": 0, **spec}
        labels = {"app": name}
        template = {"metadata": {"labels": labels}, "spec": {**pod, "containers": [container]}}
        made = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
        metadata = {"name": name, "namespace": "apirec"}
        self.api.store.create("replicasets", {"metadata": metadata, "spec": made})

    def nodes_of(self, app: str) -> list[str]:
        pods = [entry.obj for entry in self.api.store.list("pods")]
        return sorted(
            pod["spec"].get("nodeName", "")
            for pod in pods
            if pod["metadata"]["labels"]["app"] == app
        )

    async def events(self, kind: type[Event]) -> list[Any]:
        events = [decode(envelope) for envelope in await self.log.read(0, 100_000)]
        return [event for event in events if isinstance(event, kind)]

    async def decide(self) -> None:
        """Fold and decide, as a scheduler does."""
        while True:
            for envelope in await self.log.read(self.core.ledger.position):
                self.core.evolve(envelope, decode(envelope))
            commits = [
                Commit(made.commit_id, "scheduler", 0, 0, made.drafts, made.correlation)
                for made in self.core.decide(100)
            ]
            await self.log.append(commits)
            await self.log.wait(self.core.ledger.position, 0.05)

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Run controllers, an observer and a scheduler."""
        fold: Fold[SchedulerCore] = Fold(
            lambda: SchedulerCore(CoreConfig()),
            lambda core, envelope, event: core.evolve(envelope, event),
        )
        projector = Projector("scheduler", self.log, fold, options=QUICK)
        observer = Observer(self.log, self.kube, projector, ("topolog",), SYSTEM_CLOCK, RELIST_S)
        leading = observer.lead(Lease(OBSERVER, "holder", 1))
        controllers = Controllers(self.api.store).run()
        async with running(controllers, projector.run(), leading, self.decide(), self.end_pods()):
            yield

    async def end_pods(self) -> None:
        """End pods that are terminating, as kubelets do."""
        while True:
            for metadata in [entry.obj["metadata"] for entry in self.api.store.list("pods")]:
                if "deletionTimestamp" in metadata:
                    self.api.store.delete("pods", metadata["name"], "apirec", grace_s=0)
            await asyncio.sleep(0.05)

    @asynccontextmanager
    async def bound(self) -> AsyncIterator[None]:
        """Run a binder, with its evictor, that starts from the log."""
        lease = await self.log.acquire("binder", "me", 60)
        assert lease is not None
        settings = BinderSettings(
            resend_after_s=0.02, resend_at_most_every_s=0.05, evict_attempts=2
        )
        loops: list[Binder | Evictor] = []

        def after(state: BinderState, page: Folded) -> None:
            for loop in loops:
                loop.folded(state, page)

        fold: Fold[BinderState] = Fold(binder_core.initial, binder_core.evolve)
        projector = Projector("binder", self.log, fold, options=QUICK, after=after)
        loops += [
            kind(self.log, self.kube, projector, settings, SYSTEM_CLOCK)
            for kind in (Binder, Evictor)
        ]
        async with running(projector.run(), *(loop.lead(lease) for loop in loops)):
            yield

    def budget(self, name: str, **spec: Any) -> None:
        spec = {"selector": {"matchLabels": {"app": "a"}}, **spec}
        metadata = {"name": name, "namespace": "apirec"}
        self.api.store.create("poddisruptionbudgets", {"metadata": metadata, "spec": spec})

    async def fragmented(self) -> None:
        """Fill the nodes as the head of this module says."""
        await self.node("n1")
        self.replicas("a", 8, 2)
        await until(lambda: self.nodes_of("a") == ["n1", "n1"])
        await self.node("n2")
        self.replicas("b", 15)
        await until(lambda: self.nodes_of("b") == ["n2"])
        self.replicas("c", 6, nodeSelector={"name": "n2"})
        await until(lambda: self.nodes_of("c") == ["n2"])


@pytest.fixture
async def cluster(api: Api) -> AsyncIterator[Cluster]:  # noqa: F811, RUF100
    made = Cluster(api)
    async with made.watched():
        yield made
    await made.kube.close()


async def test_the_pod_that_moves_is_placed_before_the_command_ends(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    async with cluster.bound():
        await cluster.fragmented()
        assert await plan._applied(cluster.log, cluster.asked, as_json=False)
    assert cluster.nodes_of("a") == ["n1", "n2"]
    assert cluster.core.ledger.pods["booking-room-1"].node == "n1"
    printed = capsys.readouterr().out
    assert "step 1: evicting apirec/a-" in printed
    assert "step 1: room for room-1 on n1" in printed
    (nominated,) = await cluster.events(PodNominated)
    assert len(nominated.victims) == 1


async def test_a_step_whose_first_answer_was_lost_is_carried_out(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def appended_before(commits: list[Commit]) -> list[Outcome]:
        if commits and commits[0].commit_id.startswith("move/"):
            await append(commits)
        return await append(commits)

    append = cluster.log.append
    monkeypatch.setattr(cluster.log, "append", appended_before)
    async with cluster.bound():
        await cluster.fragmented()
        assert await plan._applied(cluster.log, cluster.asked, as_json=False)
    assert cluster.nodes_of("a") == ["n1", "n2"]


async def test_services_complete_a_step_whose_command_died_and_a_later_run_plans_the_rest(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(cluster.bound())
        await cluster.fragmented()
        await stack.aclose()  # The binder dies before it evicts, and the command before that.
        command = asyncio.create_task(plan._applied(cluster.log, cluster.asked, as_json=False))
        await until(lambda: "booking-room-1" in cluster.core.nominations.open)
        command.cancel()
        with suppress(asyncio.CancelledError):
            await command
    assert await cluster.events(EvictIntended) == []
    async with cluster.bound():
        assert await plan._applied(cluster.log, cluster.asked, as_json=True)
    assert cluster.core.ledger.pods["booking-room-1"].node == "n1"
    assert "room-1 was begun before" in capsys.readouterr().out
    assert len(await cluster.events(PodNominated)) == 1


async def test_a_budget_that_forbids_the_move_leaves_every_pod_where_it_is(
    cluster: Cluster,
) -> None:
    cluster.budget("keep", minAvailable=2)
    async with cluster.bound():
        await cluster.fragmented()
        assert not await plan._applied(cluster.log, cluster.asked, as_json=False)
    assert await cluster.events(EvictIntended) == []


async def test_a_refused_eviction_stops_the_step(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("one", "two"):  # The Eviction API accepts no pod with two budgets.
        cluster.budget(name, maxUnavailable=1)
    async with cluster.bound():
        await cluster.fragmented()
        for entry in cluster.api.store.list("pods"):
            ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
            cluster.api.store.patch_status("pods", entry.obj["metadata"]["name"], "apirec", ready)
        assert not await plan._applied(cluster.log, cluster.asked, as_json=False)
    assert "was refused: This pod has more than one PodDisruptionBudget" in capsys.readouterr().out
    assert cluster.nodes_of("a") == ["n1", "n1"]


async def test_a_step_that_would_be_planned_otherwise_by_now_is_not_begun(cluster: Cluster) -> None:
    async with cluster.bound():
        await cluster.fragmented()
        followed = await followed_at(cluster.log, await cluster.log.head())
        (wanted,) = await plan._wanted(cluster.log, followed[0].ledger, cluster.asked)
        moves = (await plan._planner(cluster.asked, followed)).plan([wanted.pod])
        assert [move.to for move in moves.steps[0].moves] == ["n2"]
        cluster.replicas("d", 5, nodeSelector={"name": "n2"})
        await until(lambda: cluster.nodes_of("d") == ["n2"])
        planner = partial(plan._planner, cluster.asked)
        mover = Mover(cluster.log, planner, SYSTEM_CLOCK, 5.0, lambda _text: None)
        result = await mover.carry_out(moves.steps[0], wanted)
    assert not result.done
    assert "differs by now: evictions on n1 make no room" in result.problem
    assert await cluster.events(PodNominated) == []
