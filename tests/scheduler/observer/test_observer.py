"""The observer against the simulated API over HTTP: unseen changes leak nothing, and changes seen
twice are recorded once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager

import msgspec
import pytest
import structlog

from services.scheduler.core import CoreConfig, SchedulerCore
from services.scheduler.watch.event_writer import ROLE
from services.scheduler.watch.observer import RELIST_S, Observer
from shared.eventlog.memory import MemoryEventLog
from shared.eventlog.port import Lease
from shared.events.catalog import Event
from shared.events.cluster_events import (
    ClusterListed,
    NodeEnded,
    NodeObserved,
    PodEnded,
    PodObserved,
)
from shared.events.codec import decode
from shared.events.surroundings_events import (
    ClaimObserved,
    DeviceClassObserved,
    NamespaceObserved,
    NodeDevicesObserved,
    NodeVolumesLimited,
    SurroundingEnded,
    SurroundingEvent,
    VolumeObserved,
)
from shared.kube import client
from shared.kube.client import KubeClient
from shared.kube.port import (
    Kind,
    KubeUnavailableError,
    Listed,
    UnknownKindError,
    WatchEvent,
    WatchExpiredError,
)
from shared.owned.devices import Device
from shared.runtime.clock import SYSTEM_CLOCK
from shared.runtime.leadership import LeaseLost
from shared.runtime.projector import Fold, Projector
from shared.telemetry import names
from tests.kube.test_deadlines import DribblingServer, server
from tests.runtime.helpers import QUICK, running, until
from tests.simulator.conftest import api  # noqa: F401 - fixture
from tests.simulator.contract import Api

dribbling = server
OURS = {"schedulerName": "topolog"}


class BrokenWatches(KubeClient):
    """Watches that end for the causes in `ends`, one per watch, before they show an event. Later
    watches work.
    """

    ends: Sequence[Exception] = ()

    async def watch(self, kind: Kind, resource_version: str) -> AsyncIterator[WatchEvent]:
        if self.ends and kind == "pods":
            ended, *self.ends = self.ends
            await asyncio.sleep(0.05)
            raise ended
        async for seen in super().watch(kind, resource_version):
            yield seen


class Scene:
    """A simulated cluster, a log in memory, and observers of the cluster that append to the log."""

    def __init__(self, api: Api) -> None:  # noqa: F811, RUF100
        self.api = api
        self.log = MemoryEventLog("observer")
        self.kube = BrokenWatches(api.server.url)

    @asynccontextmanager
    async def observer(self, epoch: int = 1, relist_s: float = RELIST_S) -> AsyncIterator[Observer]:
        """Run an observer that leads, as a process would; it is killed at the end."""
        fold: Fold[SchedulerCore] = Fold(
            lambda: SchedulerCore(CoreConfig()),
            lambda core, envelope, event: core.evolve(envelope, event),
        )
        projector = Projector("scheduler", self.log, fold, options=QUICK)
        observer = Observer(self.log, self.kube, projector, ("topolog",), SYSTEM_CLOCK, relist_s)
        async with running(
            projector.run(), observer.lead(Lease(ROLE, f"holder-{epoch}", epoch))
        ) as tasks:
            self.leading = tasks[1]
            yield observer

    async def events(self) -> list[Event]:
        """Return the recorded events without those of namespaces, which every server has."""
        events = [decode(envelope) for envelope in await self.log.read(0)]
        return [event for event in events if not isinstance(event, SurroundingEvent)]

    async def told(self, kind: type[Event], count: int) -> list[Event]:
        """Wait until the log has this many events of a type."""
        async with asyncio.timeout(10):
            while True:
                logged = [event for event in await self.events() if type(event) is kind]
                if len(logged) >= count:
                    return logged
                await asyncio.sleep(0.01)

    async def view(self, wanted: SurroundingEvent) -> None:
        """Wait until these events are recorded, at any version."""
        async with asyncio.timeout(10):
            while True:
                events = [decode(envelope) for envelope in await self.log.read(0)]
                same = (
                    msgspec.structs.replace(event, resource_version="")
                    for event in events
                    if type(event) is type(wanted)
                )
                if wanted in same:
                    return
                await asyncio.sleep(0.01)

    async def settled(self) -> list[Event]:
        """Return all events, when no more arrive."""
        await asyncio.sleep(0.3)
        return await self.events()

    async def node(self, name: str = "n1") -> None:
        body = {"metadata": {"name": name}, "status": {"allocatable": {"cpu": "8", "pods": "10"}}}
        answer = await self.api.ask("POST", "/api/v1/nodes", body)
        assert answer.status_code == 201, answer.text

    async def drop(self, kind: str, name: str) -> None:
        path = (
            f"/api/v1/nodes/{name}" if kind == "nodes" else f"/api/v1/namespaces/apirec/pods/{name}"
        )
        assert (await self.api.ask("DELETE", f"{path}?gracePeriodSeconds=0")).status_code == 200


@pytest.fixture
async def scene(api: Api) -> AsyncIterator[Scene]:  # noqa: F811, RUF100
    made = Scene(api)
    yield made
    await made.kube.close()


async def test_a_list_records_pods_on_nodes_before_waiting_pods(
    scene: Scene,
) -> None:
    """A decision in between would place a pod next to pods that the scheduler does not know yet,
    for example after a restored log.
    """
    await scene.node()
    await scene.api.pod("a-waits", spec=OURS)
    await scene.api.pod("b-stands", spec={**OURS, "nodeName": "n1"})
    await scene.api.pod("c-waits", spec=OURS)
    async with scene.observer():
        recorded = await scene.told(PodObserved, 3)
    assert [event.pod.name for event in recorded if isinstance(event, PodObserved)] == [
        "b-stands",
        "a-waits",
        "c-waits",
    ]


async def test_a_change_that_is_listed_and_watched_is_recorded_once(scene: Scene) -> None:
    await scene.node()
    await scene.api.pod("listed", spec=OURS)
    async with scene.observer():
        await scene.told(PodObserved, 1)
        await scene.api.pod("watched", spec=OURS)
        seen = await scene.told(PodObserved, 2)
        assert [event.pod.name for event in seen if isinstance(event, PodObserved)] == [
            "listed",
            "watched",
        ]
        assert len(await scene.settled()) == 3


async def test_a_kubelet_version_that_was_not_recorded_is_logged_once(scene: Scene) -> None:
    await scene.node("n1")
    await scene.node("n2")
    with structlog.testing.capture_logs() as lines:
        async with scene.observer():
            await scene.told(NodeObserved, 2)
    named = [line for line in lines if line["event"] == names.KUBELET_NOT_RECORDED]
    assert [(line["version"], line["rules"]) for line in named] == [
        ("unknown", "unknown: every version is considered")
    ]


async def test_an_observer_that_comes_after_another_repeats_nothing(scene: Scene) -> None:
    await scene.node()
    await scene.api.pod("p", spec=OURS)
    async with scene.observer(1):
        await scene.told(PodObserved, 1)
        await scene.told(NodeObserved, 1)
    async with scene.observer(2):
        assert len(await scene.settled()) == 2


async def test_two_observers_of_one_change_are_one_event_by_commit_id(scene: Scene) -> None:
    """A leader that was overtaken may still be appending: the commit id is made from the object,
    not from the observer.
    """
    await scene.node()
    async with scene.observer(1), scene.observer(1):
        for number in range(10):
            await scene.api.pod(f"p{number}", spec=OURS)
        await scene.told(PodObserved, 10)
        assert len(await scene.settled()) == 11


async def test_an_observer_of_an_older_epoch_is_fenced(scene: Scene) -> None:
    await scene.log.acquire(ROLE, "somebody", 5.0)
    lease = await scene.log.acquire(ROLE, "somebody", 5.0)
    assert lease is not None
    await scene.log.release(lease)
    newer = await scene.log.acquire(ROLE, "another", 5.0)
    assert newer is not None
    await scene.api.pod("p", spec=OURS)
    async with scene.observer(newer.epoch - 1):
        async with asyncio.timeout(10):
            with pytest.raises(LeaseLost):
                await scene.leading
    assert await scene.events() == []


async def test_an_unseen_delete_ends_the_pod_and_the_node(scene: Scene) -> None:
    await scene.node()
    await scene.node("n2")
    for name in ("gone", "stays"):
        await scene.api.pod(name, spec=OURS)
    async with scene.observer(1):
        await scene.told(PodObserved, 2)
        await scene.told(NodeObserved, 2)
    await scene.drop("pods", "gone")
    await scene.drop("nodes", "n2")
    async with scene.observer(2):
        (ended,) = await scene.told(PodEnded, 1)
        (lost,) = await scene.told(NodeEnded, 1)
    assert isinstance(ended, PodEnded)
    assert ended.cause == "absent_from_list"
    assert isinstance(lost, NodeEnded)
    assert (lost.name, lost.cause) == ("n2", "absent_from_list")


async def test_a_pod_of_the_same_name_made_unseen_is_another_pod(scene: Scene) -> None:
    old = await scene.api.pod("p", spec=OURS)
    async with scene.observer(1):
        await scene.told(PodObserved, 1)
    await scene.drop("pods", "p")
    new = await scene.api.pod("p", spec=OURS)
    async with scene.observer(2):
        seen = await scene.told(PodObserved, 2)
        (ended,) = await scene.told(PodEnded, 1)
    assert [event.pod.uid for event in seen if isinstance(event, PodObserved)] == [
        old["metadata"]["uid"],
        new["metadata"]["uid"],
    ]
    assert isinstance(ended, PodEnded)
    assert ended.uid == old["metadata"]["uid"]


async def test_a_node_of_another_uid_takes_the_place_of_the_old_one(scene: Scene) -> None:
    await scene.node()
    async with scene.observer():
        await scene.told(NodeObserved, 1)
        await scene.drop("nodes", "n1")
        await scene.node()
        await scene.told(NodeObserved, 2)
        events = await scene.settled()
    uids = [event.uid for event in events if isinstance(event, NodeObserved)]
    assert len(set(uids)) == 2


@pytest.mark.parametrize("problem", [WatchExpiredError("pods"), KubeUnavailableError("cut")])
async def test_a_broken_or_expired_watch_lists_again_and_misses_nothing(
    scene: Scene, problem: Exception
) -> None:
    scene.kube.ends = [problem, problem]
    await scene.api.pod("before", spec=OURS)
    async with scene.observer():
        await scene.told(PodObserved, 1)
        await scene.drop("pods", "before")
        await scene.api.pod("after", spec=OURS)
        await scene.told(PodObserved, 2)
        await scene.told(PodEnded, 1)


@pytest.mark.parametrize("problem", [WatchExpiredError("pods"), KubeUnavailableError("HTTP 403")])
async def test_lists_back_off_if_no_watch_lasts(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, problem: Exception
) -> None:
    """An API server with watches that end at once was sent 12.5 full lists a second."""
    listed, pages = [], scene.kube.pages

    async def counting(kind: Kind, streamed: bool = False) -> AsyncGenerator[Listed]:
        listed.append(kind)
        async for page in pages(kind, streamed):
            yield page

    monkeypatch.setattr(scene.kube, "pages", counting)
    scene.kube.ends = [problem] * 1000
    await scene.api.pod("p", spec=OURS)
    async with scene.observer():
        await asyncio.sleep(3.0)
    assert 2 <= listed.count("pods") <= 6


async def test_a_list_that_does_not_end_is_reported_by_readiness(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages, server_goes_on = scene.kube.pages, asyncio.Event()

    async def hanging(kind: Kind, streamed: bool = False) -> AsyncGenerator[Listed]:
        if kind == "pods":
            await server_goes_on.wait()
        async for page in pages(kind, streamed):
            yield page

    monkeypatch.setattr(scene.kube, "pages", hanging)
    monkeypatch.setattr("services.scheduler.watch.observer.SLOW_LIST_S", 1.0)
    async with scene.observer() as observer:
        await until(observer.problem)
        assert observer.problem().startswith("the list of pods has not ended after ")
        server_goes_on.set()
        await until(lambda: not observer.problem())


@pytest.mark.parametrize("piece", [b"1\r\n \r\n", b"1\r\n[\r\n"], ids=["blanks", "a line"])
async def test_a_server_that_dribbles_makes_readiness_fail(
    scene: Scene,
    dribbling: DribblingServer,
    monkeypatch: pytest.MonkeyPatch,
    piece: bytes,
) -> None:
    """A list that sent one blank every 2 s once kept a scheduler ready that had not seen any
    pod."""
    monkeypatch.setattr(client, "INITIAL_IDLE_S", 0.2)
    monkeypatch.setattr(client, "CALL_TIMEOUT_S", 0.2)
    dribbling.piece = piece
    scene.kube = BrokenWatches(dribbling.url)
    async with asyncio.timeout(10), scene.observer() as observer:
        await until(lambda: "pods" in observer.problem())


async def test_a_list_that_fails_is_tried_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    await scene.api.pod("p", spec=OURS)
    failures = [KubeUnavailableError("away")] * 2
    pages = scene.kube.pages

    async def flaky(kind: Kind, streamed: bool = False) -> AsyncGenerator[Listed]:
        if failures and kind == "pods":
            raise failures.pop()
        async for page in pages(kind):
            yield page

    monkeypatch.setattr(scene.kube, "pages", flaky)
    monkeypatch.setattr("services.scheduler.watch.observer.PAUSE_S", 0.02)
    async with scene.observer():
        await scene.told(PodObserved, 1)


async def test_readiness_says_that_the_cluster_cannot_be_listed_until_it_can(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The API server may answer everything else: without lists nothing becomes an event, and
    operators would not notice.
    """
    await scene.api.pod("p", spec=OURS)
    away, pages = [True], scene.kube.pages

    async def listing(kind: Kind, streamed: bool = False) -> AsyncGenerator[Listed]:
        if away and kind == "pods":
            raise KubeUnavailableError("list of pods is none; is a proxy in between?")
        async for page in pages(kind):
            yield page

    monkeypatch.setattr(scene.kube, "pages", listing)
    monkeypatch.setattr("services.scheduler.watch.observer.PAUSE_S", 0.02)
    async with scene.observer() as observer:
        await until(observer.problem)
        assert (
            observer.problem()
            == "pods of the cluster cannot be seen: list of pods is none; is a proxy in between?"
        )
        away.clear()
        await scene.told(PodObserved, 1)
        await until(lambda: not observer.problem())
        away.append(True)
        observer.reset()
        await scene.api.pod("q", spec=OURS)
        await until(observer.problem)
    assert not observer.problem(), "who leads no more has nothing to see"


async def test_a_log_that_begins_again_gets_everything_again(scene: Scene) -> None:
    await scene.node()
    await scene.api.pod("p", spec=OURS)
    async with scene.observer() as observer:
        await scene.told(PodObserved, 1)
        observer.reset()
        await scene.api.pod("q", spec=OURS)
        await scene.told(PodObserved, 2)
        assert len(await scene.settled()) == 3, "what the ledger holds already is no fact again"


async def test_cluster_objects_are_recorded_before_pods_followed_and_ended(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Objects are listed, watched and changed, and end while no watch runs."""
    monkeypatch.setattr("services.scheduler.watch.observer.CONFIRM_AFTER_S", 0.1)
    csi = {"driver": "d", "volumeHandle": "h"}
    claim = {
        "metadata": {"name": "c"},
        "spec": {"volumeName": "v", "accessModes": ["ReadWriteOncePod"]},
    }
    where = "/api/v1/namespaces/apirec/persistentvolumeclaims"
    reference = {"namespace": "apirec", "name": "c"}
    await scene.api.ask(
        "POST",
        "/api/v1/persistentvolumes",
        {"metadata": {"name": "v"}, "spec": {"csi": csi, "claimRef": reference}},
    )
    driver = {"name": "d", "nodeID": "x", "allocatable": {"count": 5}}
    node = {"metadata": {"name": "n1"}, "spec": {"drivers": [driver]}}
    assert (
        await scene.api.ask("POST", "/apis/storage.k8s.io/v1/csinodes", node)
    ).status_code == 201
    assert (await scene.api.ask("POST", where, claim)).status_code == 201
    await scene.api.pod("p", spec=OURS)
    async with scene.observer(1):
        await scene.told(PodObserved, 1)
        recorded = [decode(envelope) for envelope in await scene.log.read(0)]
        pod = next(
            number for number, event in enumerate(recorded) if isinstance(event, PodObserved)
        )
        kinds_before = {type(event) for event in recorded[:pod]}
        assert {VolumeObserved, NodeVolumesLimited, NamespaceObserved} <= kinds_before
        patch = {"status": {"phase": "Bound"}}
        answer = await scene.api.ask(
            "PATCH", f"{where}/c/status", patch, {"Content-Type": "application/merge-patch+json"}
        )
        assert answer.status_code == 200, answer.text
        await scene.view(ClaimObserved("apirec/c", "v", alone=True))
    await scene.api.ask("DELETE", f"{where}/c")
    await scene.api.ask("DELETE", "/apis/storage.k8s.io/v1/csinodes/n1")
    async with scene.observer(2):
        await scene.view(SurroundingEnded("claim", "apirec/c", "absent_from_list"))
        await scene.view(SurroundingEnded("csinode", "n1", "absent_from_list"))
        await scene.api.ask("DELETE", "/api/v1/persistentvolumes/v")
        await scene.view(SurroundingEnded("volume", "v", "deleted"))


async def test_a_device_object_and_its_end_are_recorded(scene: Scene) -> None:
    await scene.node()
    where, gpu = "/apis/scheduling.koordinator.sh/v1alpha1/devices", {"type": "gpu", "minor": 0}
    devices = {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Device",
        "metadata": {"name": "n1"},
        "spec": {"devices": [{**gpu, "health": True, "id": "GPU-0"}]},
    }
    async with scene.observer():
        answer = await scene.api.ask("POST", where, devices)
        assert answer.status_code == 201, answer.text
        await scene.view(NodeDevicesObserved("n1", devices=(Device("gpu", 0, id="GPU-0"),)))
        await scene.api.ask("DELETE", f"{where}/n1")
        await scene.view(SurroundingEnded("devices", "n1", "deleted"))


async def test_pods_are_recorded_if_cluster_objects_may_not_be_listed(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service has only the rights of an older release. Readiness says so, and pods without
    volumes are placed as before.
    """
    pages = scene.kube.pages

    async def forbidden(kind: Kind, streamed: bool = False) -> AsyncGenerator[Listed]:
        if kind == "csinodes":
            raise KubeUnavailableError("list of csinodes failed: HTTP 403")
        async for page in pages(kind):
            yield page

    monkeypatch.setattr(scene.kube, "pages", forbidden)
    await scene.api.pod("p", spec=OURS)
    async with scene.observer() as observer:
        await scene.told(PodObserved, 1)
        assert (
            observer.problem()
            == "csinodes of the cluster cannot be seen: list of csinodes failed: HTTP 403"
        )


async def test_a_cluster_that_serves_no_device_classes_is_no_trouble_and_one_that_does_is_heard(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The simulated API serves none, as Kubernetes before 1.34; other kinds every cluster
    serves.
    """
    pages, watch = scene.kube.pages, scene.kube.watch
    await scene.api.pod("p", spec=OURS)
    with pytest.raises(UnknownKindError):
        await scene.kube.list("deviceclasses")
    async with scene.observer(1) as observer:
        await scene.told(PodObserved, 1)
        assert observer.problem() == ""

    async def served(kind: Kind, streamed: bool = False) -> AsyncGenerator[Listed]:
        if kind == "csinodes":
            raise UnknownKindError("list of csinodes failed: HTTP 404")
        if kind == "deviceclasses":
            yield Listed(
                [
                    {
                        "metadata": {"name": "gpu", "uid": "u"},
                        "spec": {"extendedResourceName": "a.com/gpu"},
                    }
                ],
                "5",
            )
            return
        async for page in pages(kind):
            yield page

    monkeypatch.setattr(scene.kube, "pages", served)
    monkeypatch.setattr(
        scene.kube,
        "watch",
        lambda kind, version: watch("namespaces" if kind == "deviceclasses" else kind, version),
    )
    async with scene.observer(2) as observer:
        await scene.view(DeviceClassObserved("gpu", "a.com/gpu"))
        assert (
            observer.problem()
            == "csinodes of the cluster cannot be seen: list of csinodes failed: HTTP 404"
        )


async def test_the_first_list_on_a_new_timeline_is_recorded_once(scene: Scene) -> None:
    await scene.node()
    async with scene.observer():
        await scene.told(NodeObserved, 1)
    assert not await scene.told(ClusterListed, 0), "a log that was never restored waits for no list"
    await scene.log.begin_timeline(0)
    for epoch in (100, 101):
        async with scene.observer(epoch):
            await scene.told(ClusterListed, 2)
            recorded = await scene.settled()
    listed = [event for event in recorded if isinstance(event, ClusterListed)]
    assert sorted(listed, key=lambda event: event.kind) == [
        ClusterListed("nodes", 2),
        ClusterListed("pods", 2),
    ]
