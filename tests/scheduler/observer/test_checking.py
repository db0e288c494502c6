"""Lists next to the watch: changes that neither the first list nor the watch showed are recorded,
and none that the watch knows better.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator

import pytest

from shared.events.cluster_events import NodeObserved, PodEnded, PodObserved
from shared.kube.port import Kind, Listed, WatchEvent
from tests.runtime.helpers import until
from tests.scheduler.observer.test_false_lists import falsified, relist
from tests.scheduler.observer.test_observer import OURS, Scene
from tests.simulator.conftest import api  # noqa: F401 - fixture
from tests.simulator.contract import Api

OFTEN_S = 0.2


@pytest.fixture
async def scene(api: Api, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:  # noqa: F811, RUF100
    monkeypatch.setattr("services.scheduler.watch.observer.CONFIRM_AFTER_S", 0.1)
    made = Scene(api)
    await made.node()
    for name in ("a", "b"):
        await made.api.pod(name, spec=OURS)
    yield made
    await made.kube.close()


@pytest.mark.parametrize("kind", ["pods", "nodes"])
async def test_changes_missing_from_the_first_list_are_recorded_by_a_later_one(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, kind: Kind
) -> None:
    """A pod made later follows it, so that no watch shows it again."""
    await scene.node("n2")
    asked = falsified(
        scene,
        monkeypatch,
        lambda of, all_, before: (
            Listed(all_.items[:1], all_.resource_version) if of == kind and not before else all_
        ),
    )
    async with scene.observer(relist_s=OFTEN_S):
        await scene.told(PodObserved, 2)
        await scene.told(NodeObserved, 2)
        await until(lambda: asked.count(kind) > 3)
        assert len(await scene.settled()) == 4


async def test_an_end_that_the_watch_lacks_is_recorded(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = scene.kube.watch

    async def no_ends(kind: Kind, version: str) -> AsyncIterator[WatchEvent]:
        async for seen in watch(kind, version):
            if seen.type != "DELETED" and not seen.object["metadata"].get("deletionTimestamp"):
                yield seen

    monkeypatch.setattr(scene.kube, "watch", no_ends)
    async with scene.observer(relist_s=OFTEN_S):
        await scene.told(PodObserved, 2)
        await scene.drop("pods", "a")
        (ended,) = await scene.told(PodEnded, 1)
        assert isinstance(ended, PodEnded)
        assert ended.cause == "absent_from_list"


async def test_changes_watched_meanwhile_are_newer_than_the_list(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list is made. Then a pod that it shows ends, a pod that it lacks is created, and only then
    its page arrives. The first pod has changed since it was recorded, in a field without an event,
    so its commit id would differ.
    """
    late = asyncio.Event()
    lists = 0

    async def slow(kind: Kind, streamed: bool = False) -> AsyncGenerator[Listed]:
        nonlocal lists
        listed = await scene.kube.list(kind)
        lists += kind == "pods"
        if kind == "pods" and lists == 2:
            for obj in listed.items:
                obj["metadata"]["resourceVersion"] = listed.resource_version
            await late.wait()
        yield listed

    relist(scene, monkeypatch, slow)
    async with scene.observer(relist_s=OFTEN_S):
        await scene.told(PodObserved, 2)
        await until(lambda: lists == 2)
        await scene.drop("pods", "a")
        await scene.api.pod("c", spec=OURS)
        await scene.told(PodEnded, 1)
        await scene.told(PodObserved, 3)
        late.set()
        await until(lambda: lists >= 4)
        events = await scene.settled()
        (end,) = [at for at, event in enumerate(events) if isinstance(event, PodEnded)]
        assert [event.pod.name for event in events[end:] if isinstance(event, PodObserved)] == ["c"]


async def test_a_late_watch_event_of_a_pod_that_a_list_ended_is_not_recorded(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Taken for a new pod it would stay forever: its end is recorded, and is not recorded twice
    (seed 795585174).
    """
    steps = asyncio.Semaphore(0)
    watch = scene.kube.watch

    async def late(kind: Kind, version: str) -> AsyncIterator[WatchEvent]:
        async for seen in watch(kind, version):
            if kind == "pods":
                await steps.acquire()
            yield seen

    monkeypatch.setattr(scene.kube, "watch", late)
    async with scene.observer(relist_s=OFTEN_S):
        await scene.told(PodObserved, 2)
        await scene.api.set_status("a", {"phase": "Running"})
        await scene.api.set_status("a", {"phase": "Succeeded"})
        await scene.told(PodEnded, 1)
        for _ in ("runs", "has ended"):
            steps.release()
            events = await scene.settled()
    assert [event.pod.name for event in events if isinstance(event, PodObserved)] == ["a", "b"]
    assert len([event for event in events if isinstance(event, PodEnded)]) == 1
