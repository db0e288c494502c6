"""A cluster with an etcd restored from a snapshot: versions go backwards, bindings are undone, pods
vanish or are back.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator

import pytest

from services.scheduler.watch.event_writer import recurring
from shared.eventlog.port import Commit, Draft, Duplicate, Place
from shared.events import streams
from shared.events.binding_events import PodBound
from shared.events.cluster_events import NodeEnded, NodeObserved, PodEnded, PodObserved
from shared.kube.port import Kind, Listed
from tests.runtime.helpers import until
from tests.scheduler.observer.test_false_lists import relist
from tests.scheduler.observer.test_observer import OURS, Scene
from tests.simulator.conftest import api  # noqa: F401 - fixture
from tests.simulator.contract import Api


@pytest.fixture
async def scene(api: Api, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:  # noqa: F811, RUF100
    monkeypatch.setattr("services.scheduler.watch.observer.CONFIRM_AFTER_S", 0.1)
    monkeypatch.setattr("services.scheduler.watch.observer.PAUSE_S", 0.05)
    made = Scene(api)
    await made.node("n1")
    yield made
    await made.kube.close()


async def snapshot(scene: Scene) -> dict[Kind, Listed]:
    return {kind: await scene.kube.list(kind) for kind in ("pods", "nodes")}


def restored(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, then: dict[Kind, Listed], lists: int = 1000
) -> list[bool]:
    """Let the first `lists` lists of pods and of nodes show the earlier cluster. Return whether
    each list was streamed.
    """
    asked = dict[Kind, int]()
    streamed_pods = list[bool]()

    async def listing(kind: Kind, streamed: bool = False) -> AsyncGenerator[Listed]:
        asked[kind] = asked.get(kind, 0) + 1
        if kind == "pods":
            streamed_pods.append(streamed)
        yield then[kind] if kind in then and asked[kind] <= lists else await scene.kube.list(kind)

    relist(scene, monkeypatch, listing)
    return streamed_pods


async def bound(scene: Scene, uid: str) -> None:
    """Append the binder's binding, and bind the pod at the API."""
    draft = Draft(streams.pod(uid), PodBound(uid, "n1"))
    await scene.log.append(
        [
            Commit(
                commit_id=f"bound/{uid}",
                role="binder",
                epoch=0,
                time_us=1,
                drafts=(draft,),
                correlation=uid,
            )
        ]
    )


async def test_a_pod_whose_binding_is_undone_waits_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    uid = (await scene.api.pod("a", spec=OURS))["metadata"]["uid"]
    async with scene.observer(1):
        await scene.told(PodObserved, 1)
        snapshot_before = await snapshot(scene)
        await bound(scene, uid)
        streamed = restored(scene, monkeypatch, snapshot_before)
    async with scene.observer(2):
        ended, again = (await scene.told(PodEnded, 1))[0], (await scene.told(PodObserved, 2))[1]
        assert ended == PodEnded(
            uid,
            "absent_from_list",
            "n1",
            resource_version=snapshot_before["pods"].items[0]["metadata"]["resourceVersion"],
        )
        assert isinstance(again, PodObserved)
        assert (again.pod.uid, again.node) == (uid, "")
        assert len(await scene.settled()) == 5
    assert streamed == [True, False], "it is confirmed where writes are"


async def test_a_list_from_before_a_binding_undoes_nothing(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    uid = (await scene.api.pod("a", spec=OURS))["metadata"]["uid"]
    async with scene.observer(1):
        await scene.told(PodObserved, 1)
        snapshot_before = await snapshot(scene)
        await bound(scene, uid)
        body = {"metadata": {"name": "a", "uid": uid}, "target": {"kind": "Node", "name": "n1"}}
        await scene.api.ask(
            "POST",
            "/api/v1/namespaces/apirec/pods/a/binding",
            {"apiVersion": "v1", "kind": "Binding", **body},
        )
        restored(scene, monkeypatch, snapshot_before, lists=1)
    async with scene.observer(2):
        assert not [event for event in await scene.settled() if isinstance(event, PodEnded)]


async def test_what_came_after_the_snapshot_ends_though_younger(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abcdefghijklmnopqrst":
        await scene.api.pod(name, spec=OURS)
    async with scene.observer(1):
        await scene.told(PodObserved, 20)
        snapshot_before = await snapshot(scene)
        uid = (await scene.api.pod("late", spec=OURS))["metadata"]["uid"]
        await scene.told(PodObserved, 21)
        restored(scene, monkeypatch, snapshot_before)
    async with scene.observer(2):
        (ended,) = await scene.told(PodEnded, 1)
        assert isinstance(ended, PodEnded)
        assert (ended.uid, ended.cause) == (uid, "absent_from_list")


async def test_one_list_older_than_the_log_ends_nothing(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abcdefghijklmnopqrst":
        await scene.api.pod(name, spec=OURS)
    async with scene.observer(1):
        await scene.told(PodObserved, 20)
        snapshot_before = await snapshot(scene)
        await scene.api.pod("late", spec=OURS)
        await scene.told(PodObserved, 21)
        streamed = restored(scene, monkeypatch, snapshot_before, lists=1)
    async with scene.observer(2):
        await until(lambda: len(streamed) == 2)
        assert not [event for event in await scene.settled() if isinstance(event, PodEnded)]


async def test_an_ended_object_that_returns_unchanged_is_recorded_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its version was recorded before: the log takes the same commit for the old one."""
    await scene.api.pod("a", spec={**OURS, "nodeName": "n1"})
    async with scene.observer(1):
        await scene.told(PodObserved, 1)
        await scene.told(NodeObserved, 1)
        snapshot_before = await snapshot(scene)
        for kind, name in (("pods", "a"), ("nodes", "n1")):
            await scene.drop(kind, name)
        await scene.told(PodEnded, 1)
        await scene.told(NodeEnded, 1)
        restored(scene, monkeypatch, snapshot_before)
    async with scene.observer(2):
        first, again = await scene.told(PodObserved, 2)
        assert first == again
        first, again = await scene.told(NodeObserved, 2)
        assert first == again
        kinds = [type(event) for event in await scene.settled()]
        assert kinds.count(PodObserved) == kinds.count(NodeObserved) == 2


async def test_a_watch_that_went_on_from_a_version_to_come_is_given_up(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a watch reports nothing; the list that is made next to it shows the changes."""
    for name in "abcdefghijklmnopqrst":
        await scene.api.pod(name, spec=OURS)
    async with scene.observer(relist_s=0.2):
        await scene.told(PodObserved, 20)
        snapshot_before = await snapshot(scene)
        uid = (await scene.api.pod("late", spec=OURS))["metadata"]["uid"]
        await scene.told(PodObserved, 21)
        restored(scene, monkeypatch, snapshot_before)
        (ended,) = await scene.told(PodEnded, 1)
        assert isinstance(ended, PodEnded)
        assert ended.uid == uid


@pytest.mark.parametrize(("last", "repeated"), [(4, True), (5, True), (6, False)])
def test_an_event_recurs_if_the_fold_had_the_one_it_duplicates(last: int, repeated: bool) -> None:
    """This includes the event at the fold's own position. A later one is from another observer, so
    it is a duplicate.
    """
    commit = Commit("kube/u/PodObserved/7", "observer", 1, 0, ())
    sent = recurring([commit], [Duplicate(last, last)], Place(5, b""))
    assert [each.commit_id for each in sent] == (["kube/u/PodObserved/7@5"] if repeated else [])
