"""Two cells over one simulated cluster: each node is in one log, and moves with its pods. Pods that
a cell cannot place go to the next one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
import structlog

from services.scheduler.core import CoreConfig, SchedulerCore
from services.scheduler.watch.event_writer import ROLE
from services.scheduler.watch.observer import Observer
from shared.domain.cells import HOPS, OWNER, WANTED, Cell, Cells
from shared.eventlog.memory import MemoryEventLog
from shared.eventlog.port import Commit, Draft, Lease
from shared.events import streams
from shared.events.binding_events import BindIntended, PodBound
from shared.events.catalog import Event
from shared.events.cluster_events import NodeEnded, NodeObserved, PodEnded, PodObserved
from shared.events.codec import decode
from shared.events.scheduling_events import (
    NodeCharged,
    PodReserved,
    PodVerdictChanged,
    ReservationWithdrawn,
)
from shared.events.surroundings_events import SurroundingEvent
from shared.kube.client import KubeClient
from shared.kube.port import Answer, Lost
from shared.runtime.clock import SYSTEM_CLOCK
from shared.runtime.projector import Fold, Projector
from tests.runtime.helpers import QUICK, running
from tests.simulator.conftest import api  # noqa: F401 - fixture
from tests.simulator.contract import Api

CELLS, WAIT_S = (Cell("a"), Cell("b")), 0.1
OURS = {"schedulerName": "topolog"}


class OneCell:
    """One cell: a log, and its observer while it runs."""

    def __init__(self, name: str, kube: KubeClient) -> None:
        self.log, self.kube = MemoryEventLog(name), kube
        self.config = CoreConfig(cells=Cells(name, CELLS, WAIT_S))
        self.epoch = 0

    @asynccontextmanager
    async def observer(self) -> AsyncIterator[Observer]:
        """Run an observer that leads; it is killed at the end."""
        fold: Fold[SchedulerCore] = Fold(
            lambda: SchedulerCore(self.config),
            lambda core, envelope, event: core.evolve(envelope, event),
        )
        projector = Projector("scheduler", self.log, fold, options=QUICK)
        observer = Observer(
            self.log, self.kube, projector, ("topolog",), SYSTEM_CLOCK, cells=self.config.cells
        )
        self.epoch += 1
        lease = Lease(ROLE, f"holder-{self.epoch}", self.epoch)
        async with running(projector.run(), observer.lead(lease)):
            yield observer

    async def tell(self, *drafts: Draft) -> None:
        """Append what a scheduler or binder would."""
        head = await self.log.head()
        await self.log.append([Commit(f"told/{head}", "test", 0, 0, drafts)])

    async def events(self) -> list[Event]:
        events = [decode(envelope) for envelope in await self.log.read(0, 10_000)]
        return [event for event in events if not isinstance(event, SurroundingEvent)]

    async def has(self, *kinds: type[Event]) -> list[Event]:
        """Wait for events of each of these types; return all events."""
        async with asyncio.timeout(20):
            while True:
                events = await self.events()
                if {type(event) for event in events} >= set(kinds):
                    return events
                await asyncio.sleep(0.02)

    async def count(self, kind: type[Event]) -> int:
        return sum(isinstance(event, kind) for event in await self.events())

    async def core(self) -> SchedulerCore:
        """Return a scheduler that has folded the log."""
        core = SchedulerCore(self.config)
        for envelope in await self.log.read(0, 10_000):
            core.evolve(envelope, decode(envelope))
        return core


class Two:
    def __init__(self, api: Api) -> None:  # noqa: F811, RUF100
        self.api, self.kube = api, KubeClient(api.server.url)
        self.a, self.b = OneCell("a", self.kube), OneCell("b", self.kube)

    async def node(self, name: str, **labels: str) -> None:
        status = {"allocatable": {"cpu": "8", "pods": "10"}}
        body = {"metadata": {"name": name, "labels": labels}, "status": status}
        assert (await self.api.ask("POST", "/api/v1/nodes", body)).status_code == 201

    async def label(self, name: str, **labels: str | None) -> None:
        headers = {"Content-Type": "application/merge-patch+json"}
        body = {"metadata": {"labels": labels}}
        answer = await self.api.ask("PATCH", f"/api/v1/nodes/{name}", body, headers=headers)
        assert answer.status_code == 200, answer.text

    async def waiting(self, name: str, **labels: str) -> tuple[str, OneCell, OneCell]:
        """Create a pod; return its uid, its cell and the other cell."""
        made = await self.api.pod(name, spec=OURS, labels=labels)
        is_in_a = Cells("a", CELLS).route(made).cell == "a"
        both = (self.a, self.b) if is_in_a else (self.b, self.a)
        return made["metadata"]["uid"], *both

    async def hops(self, name: str) -> str:
        answer = await self.kube.get_pod("apirec", name)
        return str(answer.body["metadata"].get("annotations", {}).get(HOPS, ""))  # type: ignore[union-attr]

    async def owner(self, name: str) -> str:
        answer = await self.kube.get_node(name)
        return str(answer.body["metadata"].get("labels", {}).get(OWNER, ""))  # type: ignore[union-attr]

    async def owned(self, name: str, by: str) -> None:
        await eventually(lambda: self.owner(name), by)


@pytest.fixture
async def two(api: Api) -> AsyncIterator[Two]:  # noqa: F811, RUF100
    made = Two(api)
    yield made
    await made.kube.close()


async def eventually(ask: Callable[[], Awaitable[object]], wanted: object) -> None:
    """Wait until the answer is this."""
    async with asyncio.timeout(20):
        while await ask() != wanted:  # noqa: ASYNC110 - any condition
            await asyncio.sleep(0.02)


def kinds_of(events: Sequence[Event], *kinds: type[Event]) -> list[tuple[str, str]]:
    """Return (type, name or uid) of events of these types."""
    return [
        (type(event).__name__, event.about.node if "Node" in type(event).__name__ else "")
        for event in events
        if isinstance(event, kinds)
    ]


async def test_each_node_and_its_pods_are_in_one_log(two: Two) -> None:
    await two.node("n1", **{WANTED: "a"})
    await two.node("n2", **{WANTED: "b"})
    await two.api.pod("waits", spec=OURS, labels={WANTED: "a"})
    await two.api.pod("on-n2", spec={**OURS, "nodeName": "n2"}, labels={WANTED: "a"})
    async with two.a.observer(), two.b.observer():
        in_a = await two.a.has(NodeObserved, PodObserved)
        in_b = await two.b.has(NodeObserved, PodObserved)
    assert [e.name for e in in_a if isinstance(e, NodeObserved)] == ["n1"]
    assert [e.pod.name for e in in_a if isinstance(e, PodObserved)] == ["waits"]
    assert [e.name for e in in_b if isinstance(e, NodeObserved)] == ["n2"]
    assert [e.pod.name for e in in_b if isinstance(e, PodObserved)] == ["on-n2"]


async def test_a_node_moves_with_its_pods(two: Two) -> None:
    """The old log ends pods and node in one commit; the new log has the pods before the node."""
    await two.node("n1", **{WANTED: "a"})
    await two.api.pod("stays", spec={**OURS, "nodeName": "n1"})
    async with two.a.observer(), two.b.observer():
        await two.a.has(NodeObserved, PodObserved)
        await two.label("n1", **{WANTED: "b"})
        in_a, in_b = await two.a.has(NodeEnded), await two.b.has(NodeObserved)
        await two.owned("n1", "b")
    assert kinds_of(in_a, PodEnded, NodeEnded) == [("PodEnded", ""), ("NodeEnded", "n1")]
    end = next(event for event in in_a if isinstance(event, NodeEnded))
    assert end.cause == "moved"
    assert kinds_of(in_b, PodObserved, NodeObserved) == [
        ("PodObserved", ""),
        ("NodeObserved", "n1"),
    ]
    core = await two.a.core()
    assert not core.ledger.nodes
    assert not core.ledger.pods


async def test_a_reservation_keeps_a_node_until_it_is_withdrawn(two: Two) -> None:
    await two.node("n1", **{WANTED: "a"})
    await two.api.pod("p", spec=OURS, labels={WANTED: "a"})
    async with two.a.observer(), two.b.observer():
        in_a = await two.a.has(NodeObserved, PodObserved)
        uid = next(event.pod.uid for event in in_a if isinstance(event, PodObserved))
        await two.a.tell(
            Draft(streams.pod(uid), PodReserved(uid, "n1", 0, 0)),
            Draft(streams.node("n1"), NodeCharged("n1", uid)),
        )
        await two.label("n1", **{WANTED: "b"})
        await eventually(lambda: two.a.count(NodeObserved), 2)
        core = await two.a.core()
        (withdrawal,) = [p for p in core.decide(10) if p.commit_id.startswith("withdraw/")]
        assert withdrawal.drafts[0].event == ReservationWithdrawn(uid, "n1", "node_leaves")
        assert await two.owner("n1") == "a"
        assert not [event for event in await two.b.events() if isinstance(event, NodeObserved)]
        await two.a.tell(*withdrawal.drafts)
        await two.b.has(NodeObserved)
    assert not [event for event in await two.a.events() if isinstance(event, PodEnded)]


async def test_a_binding_under_way_keeps_a_node(two: Two) -> None:
    await two.node("n1", **{WANTED: "a"})
    await two.api.pod("p", spec=OURS, labels={WANTED: "a"})
    async with two.a.observer() as observer:
        in_a = await two.a.has(NodeObserved, PodObserved)
        uid = next(event.pod.uid for event in in_a if isinstance(event, PodObserved))
        await two.a.tell(
            Draft(streams.pod(uid), PodReserved(uid, "n1", 0, 0)),
            Draft(streams.node("n1"), NodeCharged("n1", uid)),
            Draft(streams.pod(uid), BindIntended(uid, "apirec", "p", "n1", 0)),
        )
        await two.label("n1", **{WANTED: "b"})
        await eventually(lambda: two.a.count(NodeObserved), 2)
        assert observer.cell is not None
        assert observer.cell.nodes.to_leave((await two.a.core()).folded) == ["n1"]
        assert observer.cell.nodes.leave((await two.a.core()).folded, "n1") == ()
        assert await two.a.count(NodeEnded) == 0
        await two.a.tell(Draft(streams.pod(uid), PodBound(uid, "n1")))
        await two.a.has(NodeEnded)


async def test_an_observer_that_comes_after_another_gives_the_node_away(two: Two) -> None:
    """The first one is killed after the node left the log and before the label changed."""
    await two.node("n1", **{WANTED: "a"})

    async def refuse(*_: Any) -> Any:
        await asyncio.Event().wait()

    async with two.a.observer():
        await two.a.has(NodeObserved)
        await two.label("n1", **{WANTED: "b"})
        patch, two.kube.patch_node = two.kube.patch_node, refuse  # type: ignore[method-assign, assignment]
        await two.a.has(NodeEnded)
    two.kube.patch_node = patch  # type: ignore[method-assign]
    assert await two.owner("n1") == "a"
    async with two.b.observer(), two.a.observer():
        await two.owned("n1", "b")
        await two.b.has(NodeObserved)


async def test_a_cell_that_lost_a_node_against_its_will_ends_it(two: Two) -> None:
    """An operator gave the node of a dead cell to another one by hand."""
    await two.node("n1", **{WANTED: "a"})
    async with two.a.observer():
        await two.a.has(NodeObserved)
        await two.label("n1", **{OWNER: "b", WANTED: "b"})
        await two.a.has(NodeEnded)
    assert await two.owner("n1") == "b"


def refused(uid: str) -> Draft:
    return Draft(streams.pod(uid), PodVerdictChanged(uid, "0/1 nodes are available"))


async def test_a_pod_without_a_node_goes_round_the_cells(two: Two) -> None:
    uid, home, next_cell = await two.waiting("p")
    async with two.a.observer(), two.b.observer():
        await home.has(PodObserved)
        assert not await next_cell.count(PodObserved)
        await home.tell(refused(uid))
        (end,) = [e for e in await home.has(PodEnded) if isinstance(e, PodEnded)]
        assert (end.cause, end.hops, end.message) == ("moved", 1, "0/1 nodes are available")
        await next_cell.has(PodObserved)
        await next_cell.tell(refused(uid))
        await eventually(lambda: home.count(PodObserved), 2)
        assert await two.hops("p") == "2"
        await home.tell(
            Draft(streams.pod(uid), PodReserved(uid, "n1", 0, 0)),
            Draft(streams.node("n1"), NodeCharged("n1", uid)),
        )
        await eventually(lambda: next_cell.count(PodEnded), 2)
    assert uid not in (await next_cell.core()).ledger.pods
    assert (await home.core()).ledger.pods[uid].stage == "reserved"
    assert not (await home.core()).folded.let_go
    assert not (await next_cell.core()).folded.let_go


async def test_an_observer_shows_the_hops_that_another_did_not(two: Two) -> None:
    """The first one is killed after the pod ended in its log and before the API shows that."""
    uid, home, next_cell = await two.waiting("p")

    async def never(*_: Any) -> Any:
        await asyncio.Event().wait()

    async with home.observer(), next_cell.observer():
        await home.has(PodObserved)
        patch, two.kube.patch_pod_status = two.kube.patch_pod_status, never  # type: ignore[method-assign, assignment]
        await home.tell(refused(uid))
        await home.has(PodEnded)
    two.kube.patch_pod_status = patch  # type: ignore[method-assign]
    assert (await home.core()).folded.let_go == {uid: 1}
    assert await two.hops("p") == ""
    async with home.observer(), next_cell.observer():
        await next_cell.has(PodObserved)
    assert await home.count(PodObserved) == 1


async def test_a_pod_that_was_let_go_and_names_its_cell_comes_back(two: Two) -> None:
    uid, home, _ = await two.waiting("p")
    own_name = "a" if home is two.a else "b"

    async def lost(*_: Any) -> Any:
        return Lost("no answer")

    two.kube.patch_pod_status = lost  # type: ignore[method-assign, assignment]
    async with home.observer():
        await home.has(PodObserved)
        await home.tell(refused(uid))
        await home.has(PodEnded)
        headers = {"Content-Type": "application/merge-patch+json"}
        body = {"metadata": {"labels": {WANTED: own_name}}}
        path = "/api/v1/namespaces/apirec/pods/p"
        assert (await two.api.ask("PATCH", path, body, headers=headers)).status_code == 200
        await eventually(lambda: home.count(PodObserved), 2)
    core = await home.core()
    assert core.ledger.pods[uid].stage == "pending"
    assert not core.folded.let_go


async def test_a_refused_patch_is_logged_once_and_sent_ever_more_seldom(two: Two) -> None:
    asked = list[str]()

    async def forbidden(name: str, _patch: Any) -> Answer:
        asked.append(name)
        return Answer(403, "Forbidden", f"try {len(asked)}")

    await two.node("n1", **{WANTED: "a"})
    patch, two.kube.patch_node = two.kube.patch_node, forbidden  # type: ignore[method-assign, assignment]
    with structlog.testing.capture_logs() as lines:
        async with two.a.observer() as observer:
            await eventually(lambda: _number(len(asked)), 1)
            assert observer.cell is not None
            for _ in range(20):
                await observer.cell.keep(Lease(ROLE, "holder-1", two.a.epoch))
            assert len(asked) == 1
            two.kube.patch_node = patch  # type: ignore[method-assign]
            await two.owned("n1", "a")
    assert [line["problem"] for line in lines if line["event"] == "cell.kept"] == ["try 1"]


async def _number(number: int) -> int:
    return number
