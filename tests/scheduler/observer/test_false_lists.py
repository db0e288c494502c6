"""Lists that are none, or lack what is there: nothing that runs loses its charge by one wrong answer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest

from shared.events.cluster_facts import NodeEnded, NodeObserved, PodEnded, PodObserved
from shared.kube.port import Kind, KubeUnavailableError, Listed
from tests.runtime.helpers import until
from tests.scheduler.observer.test_observer import OURS, Scene
from tests.simulator.conftest import api  # noqa: F401 - fixture
from tests.simulator.contract import Api

Falsify = Callable[[Kind, Listed, int], Listed]
PODS = 5


@pytest.fixture
async def scene(api: Api, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:  # noqa: F811
    monkeypatch.setattr("services.scheduler.observing.observer.CONFIRM_AFTER_S", 0.1)
    monkeypatch.setattr("services.scheduler.observing.observer.PAUSE_S", 0.05)
    made = Scene(api)
    for number in range(2):
        await made.node(f"n{number}")
    for number in range(PODS):
        await made.api.pod(f"p{number}", spec=OURS)
    async with made.observer(1):
        await made.told(PodObserved, PODS)
        await made.told(NodeObserved, 2)
    yield made
    await made.kube.close()


def falsified(scene: Scene, monkeypatch: pytest.MonkeyPatch, falsify: Falsify) -> list[str]:
    """Every list passes through `falsify(kind, listed, number of lists of this kind before)`; returns the kinds listed."""
    list_, asked = scene.kube.list, list[str]()

    async def listing(kind: Kind) -> Listed:
        asked.append(kind)
        return falsify(kind, await list_(kind), asked.count(kind) - 1)

    monkeypatch.setattr(scene.kube, "list", listing)
    return asked


async def ends(scene: Scene) -> list[str]:
    return [type(fact).__name__ for fact in await scene.settled() if isinstance(fact, PodEnded | NodeEnded)]


async def test_one_empty_list_ends_nothing_and_is_asked_again(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = falsified(scene, monkeypatch, lambda _kind, listed, before: listed if before else Listed([], listed.resource_version))
    async with scene.observer(2):
        assert await ends(scene) == []
        await scene.api.pod("after", spec=OURS)
        await scene.told(PodObserved, PODS + 1)
    assert asked.count("pods") == asked.count("nodes") == 2


async def test_what_a_second_list_lacks_too_has_ended(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(PODS - 1):
        await scene.drop("pods", f"p{number}")
    asked = falsified(scene, monkeypatch, lambda _kind, listed, _before: listed)
    async with scene.observer(2):
        await scene.told(PodEnded, PODS - 1)
        assert await ends(scene) == ["PodEnded"] * (PODS - 1)
    assert asked.count("pods") == 2
    assert asked.count("nodes") == 1


async def test_only_what_two_lists_lack_one_after_the_other_has_ended(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each list lacks another half: nobody is missing from all but p0."""

    def halves(kind: Kind, listed: Listed, before: int) -> Listed:
        lacking = (("p0", "p1", "p2"), ("p0", "p3", "p4"), ("p0",))[min(before, 2)]
        return Listed([item for item in listed.items if item["metadata"]["name"] not in lacking], listed.resource_version)

    falsified(scene, monkeypatch, halves)
    async with scene.observer(2):
        await scene.told(PodEnded, 1)
        assert await ends(scene) == ["PodEnded"]


async def test_what_went_between_two_lists_has_ended_though_no_watch_tells(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first list lacked everything but p0, which went before the second: the watch begins after that."""
    list_, asked = scene.kube.list, list[Kind]()

    async def listing(kind: Kind) -> Listed:
        asked.append(kind)
        listed = await list_(kind)
        if kind == "nodes" or asked.count(kind) > 1:
            return listed
        await scene.drop("pods", "p0")
        return Listed([item for item in listed.items if item["metadata"]["name"] == "p0"], listed.resource_version)

    monkeypatch.setattr(scene.kube, "list", listing)
    async with scene.observer(2):
        await scene.told(PodEnded, 1)
        assert await ends(scene) == ["PodEnded"]


async def test_a_second_list_from_before_the_first_is_no_confirmation(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    def from_a_lagging_server(kind: Kind, listed: Listed, before: int) -> Listed:
        if kind == "nodes" or before > 3:
            return listed
        version = int(listed.resource_version) + 1000 - 500 * (before % 2)
        return Listed([], str(version))

    asked = falsified(scene, monkeypatch, from_a_lagging_server)
    async with scene.observer(2):
        await until(lambda: asked.count("pods") >= 5)
        assert await ends(scene) == []


async def test_a_list_that_is_none_ends_nothing(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the client says of an error page (`tests/kube/test_lists.py`)."""
    list_, failures = scene.kube.list, ["pods", "nodes"] * 3

    async def behind_a_proxy(kind: Kind) -> Listed:
        if kind in failures:
            failures.remove(kind)
            raise KubeUnavailableError(f"list of {kind} is none")
        return await list_(kind)

    monkeypatch.setattr(scene.kube, "list", behind_a_proxy)
    async with scene.observer(2):
        await scene.api.pod("after", spec=OURS)
        await scene.told(PodObserved, PODS + 1)
        assert await ends(scene) == []
