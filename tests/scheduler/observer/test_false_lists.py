"""Broken lists and lists that lack present objects: no running pod loses its charge because of one
wrong answer.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable

import pytest

from shared.events.cluster_events import NodeEnded, NodeObserved, PodEnded, PodObserved
from shared.kube.port import Answer, Kind, KubeUnavailableError, Listed, Object
from tests.runtime.helpers import until
from tests.scheduler.observer.test_observer import OURS, Scene
from tests.simulator.conftest import api  # noqa: F401 - fixture
from tests.simulator.contract import Api

Falsify = Callable[[Kind, Listed, int], Listed]
PODS = 5


@pytest.fixture
async def scene(api: Api, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:  # noqa: F811, RUF100
    monkeypatch.setattr("services.scheduler.watch.observer.CONFIRM_AFTER_S", 0.1)
    monkeypatch.setattr("services.scheduler.watch.observer.PAUSE_S", 0.05)
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
    """Every list passes through `falsify(kind, listed, number of lists of this kind before)`;
    returns the kinds listed.
    """
    asked = list[str]()

    async def listing(kind: Kind, streamed: bool = False) -> AsyncGenerator[Listed]:
        asked.append(kind)
        yield falsify(kind, await scene.kube.list(kind), asked.count(kind) - 1)

    relist(scene, monkeypatch, listing)
    return asked


def relist(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, pages: Callable[..., AsyncGenerator[Listed]]
) -> None:
    """Take the observer's pages from `pages`, which may call `scene.kube.list`."""
    true_pages = scene.kube.pages

    async def list_(kind: Kind) -> Listed:
        items: list[Object] = []
        version = ""
        async for page in true_pages(kind):
            items, version = [*items, *page.items], page.resource_version
        return Listed(items, version)

    monkeypatch.setattr(scene.kube, "list", list_)
    monkeypatch.setattr(scene.kube, "pages", pages)


async def ends(scene: Scene) -> list[str]:
    return [
        type(event).__name__
        for event in await scene.settled()
        if isinstance(event, PodEnded | NodeEnded)
    ]


async def test_one_empty_list_ends_nothing_and_is_asked_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = falsified(
        scene,
        monkeypatch,
        lambda _kind, listed, before: listed if before else Listed([], listed.resource_version),
    )
    async with scene.observer(2):
        assert await ends(scene) == []
        await scene.api.pod("after", spec=OURS)
        await scene.told(PodObserved, PODS + 1)
    assert asked.count("pods") == asked.count("nodes") == 2


async def test_an_empty_first_list_of_all_hides_nothing(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No object was known that could be absent, and no watch shows the objects before it."""
    monkeypatch.setattr("services.scheduler.watch.observer.PAUSE_S", 0.05)
    scene = Scene(api)
    await scene.node("n0")
    await scene.api.pod("p0", spec=OURS)
    falsified(
        scene,
        monkeypatch,
        lambda _kind, listed, before: listed if before else Listed([], listed.resource_version),
    )
    async with scene.observer(1):
        await scene.told(PodObserved, 1)
        await scene.told(NodeObserved, 1)
    await scene.kube.close()


async def test_what_a_second_list_lacks_too_has_ended(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(PODS - 1):
        await scene.drop("pods", f"p{number}")
    asked = falsified(scene, monkeypatch, lambda _kind, listed, _before: listed)
    async with scene.observer(2):
        await scene.told(PodEnded, PODS - 1)
        assert await ends(scene) == ["PodEnded"] * (PODS - 1)
    assert asked.count("pods") == 2
    assert asked.count("nodes") == 1


async def test_only_what_two_lists_lack_one_after_the_other_has_ended(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each list lacks another half of the pods. Only p0 is missing from both."""

    def halves(kind: Kind, listed: Listed, before: int) -> Listed:
        lacking = (("p0", "p1", "p2"), ("p0", "p3", "p4"), ("p0",))[min(before, 2)]
        return Listed(
            [item for item in listed.items if item["metadata"]["name"] not in lacking],
            listed.resource_version,
        )

    falsified(scene, monkeypatch, halves)
    async with scene.observer(2):
        await scene.told(PodEnded, 1)
        assert await ends(scene) == ["PodEnded"]


async def test_what_two_lists_lack_ends_though_the_next_lacks_many_others(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If pods come and go faster than lists are made, every list lacks many pods of the one before
    it.
    """

    def ever_others(kind: Kind, listed: Listed, before: int) -> Listed:
        lacking = (("p0", "p1", "p2"), ("p0", "p3", "p4"))[before % 2]
        return Listed(
            [item for item in listed.items if item["metadata"]["name"] not in lacking],
            listed.resource_version,
        )

    asked = falsified(scene, monkeypatch, ever_others)
    async with scene.observer(2):
        await scene.told(PodEnded, 1)
        await until(lambda: asked.count("pods") >= 6)
        assert await ends(scene) == ["PodEnded"]


async def test_pods_that_vanish_between_two_lists_end_without_a_watch_event(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first list lacked everything but p0, which went before the second: the watch begins after
    that.
    """
    asked = list[Kind]()

    async def listing(kind: Kind, streamed: bool = False) -> AsyncGenerator[Listed]:
        asked.append(kind)
        listed = await scene.kube.list(kind)
        if kind == "pods" and asked.count(kind) == 1:
            await scene.drop("pods", "p0")
            listed = Listed(
                [item for item in listed.items if item["metadata"]["name"] == "p0"],
                listed.resource_version,
            )
        yield listed

    relist(scene, monkeypatch, listing)
    async with scene.observer(2):
        await scene.told(PodEnded, 1)
        assert await ends(scene) == ["PodEnded"]


async def test_a_second_list_from_before_the_first_is_no_confirmation(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def from_a_lagging_server(kind: Kind, listed: Listed, before: int) -> Listed:
        if kind != "pods" or before > 3:
            return listed
        version = int(listed.resource_version) + 1000 - 500 * (before % 2)
        return Listed([], str(version))

    asked = falsified(scene, monkeypatch, from_a_lagging_server)
    async with scene.observer(2):
        await until(lambda: asked.count("pods") >= 5)
        assert await ends(scene) == []


async def test_a_list_that_is_none_ends_nothing(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client raises this error for an error page instead of a list
    (`tests/kube/test_lists.py`).
    """
    failures = ["pods", "nodes"] * 3

    async def behind_a_proxy(kind: Kind, streamed: bool = False) -> AsyncGenerator[Listed]:
        if kind in failures:
            failures.remove(kind)
            raise KubeUnavailableError(f"list of {kind} is none")
        yield await scene.kube.list(kind)

    relist(scene, monkeypatch, behind_a_proxy)
    async with scene.observer(2):
        await scene.api.pod("after", spec=OURS)
        await scene.told(PodObserved, PODS + 1)
        assert await ends(scene) == []


async def test_a_stream_that_shows_nothing_is_confirmed_by_pages(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end mark alone does not prove that many objects ended."""
    asked = list[tuple[Kind, bool]]()

    async def listing(kind: Kind, streamed: bool = False) -> AsyncGenerator[Listed]:
        asked.append((kind, streamed))
        listed = await scene.kube.list(kind)
        yield Listed([], listed.resource_version) if streamed else listed

    relist(scene, monkeypatch, listing)
    async with scene.observer(2):
        await until(lambda: ("pods", False) in asked)
        assert await ends(scene) == []
    assert [streamed for kind, streamed in asked if kind == "pods"] == [True, False]


async def test_what_a_stream_shows_and_takes_back_has_ended(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pod of an earlier part was deleted before the mark; its version is younger than the list's,
    which could not end it.
    """

    async def listing(kind: Kind, streamed: bool = False) -> AsyncGenerator[Listed]:
        listed = await scene.kube.list(kind)
        first = next((item for item in listed.items if item["metadata"]["name"] == "p0"), None)
        if first is None:
            yield listed
            return
        yield Listed(listed.items[:2], "")
        yield Listed(listed.items[2:], "", [first])
        yield Listed([], listed.resource_version)

    relist(scene, monkeypatch, listing)
    async with scene.observer(2):
        (ended,) = await scene.told(PodEnded, 1)
        assert isinstance(ended, PodEnded)
        assert ended.cause == "deleted"
        assert await ends(scene) == ["PodEnded"]


async def test_a_stream_that_breaks_off_ends_nothing(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = [True] * 3

    async def listing(kind: Kind, streamed: bool = False) -> AsyncGenerator[Listed]:
        listed = await scene.kube.list(kind)
        if kind == "pods" and broken:
            broken.pop()
            yield Listed(listed.items[:1], "")
            raise KubeUnavailableError("ended before it had shown all")
        yield listed

    relist(scene, monkeypatch, listing)
    async with scene.observer(2):
        await until(lambda: not broken)
        assert await ends(scene) == []


async def test_a_list_that_lacks_a_few_running_pods_ends_none_of_them(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A well-formed list (200) without 2 of 46 pods, far below any share that looks like a
    mistake.
    """
    async with scene.observer(2):
        for number in range(PODS, 46):
            await scene.api.pod(f"p{number}", spec=OURS)
        await scene.told(PodObserved, 46)

    def without_two(_kind: Kind, listed: Listed, _before: int) -> Listed:
        remaining = [obj for obj in listed.items if obj["metadata"]["name"] not in ("p0", "p7")]
        return Listed(remaining, listed.resource_version)

    falsified(scene, monkeypatch, without_two)
    async with scene.observer(3):
        await scene.api.pod("after", spec=OURS)
        await scene.told(PodObserved, 47)
        await scene.drop("pods", "p1")
        await scene.told(PodEnded, 1)
        assert await ends(scene) == ["PodEnded"]


async def test_a_pod_that_ended_unobserved_is_asked_for_and_ends(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scene.observer(2):
        for number in range(PODS, 46):
            await scene.api.pod(f"p{number}", spec=OURS)
        await scene.told(PodObserved, 46)
    await scene.drop("pods", "p0")
    asked = falsified(scene, monkeypatch, lambda _kind, listed, _before: listed)
    async with scene.observer(3):
        await scene.told(PodEnded, 1)
    assert asked.count("pods") == 1


async def test_without_the_right_to_get_pods_a_second_list_must_agree(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def forbidden(_namespace: str, _name: str) -> Answer:
        return Answer(403, "Forbidden")

    async with scene.observer(2):
        for number in range(PODS, 46):
            await scene.api.pod(f"p{number}", spec=OURS)
        await scene.told(PodObserved, 46)
    monkeypatch.setattr(scene.kube, "get_pod", forbidden)
    await scene.drop("pods", "p0")
    asked = falsified(scene, monkeypatch, lambda _kind, listed, _before: listed)
    async with scene.observer(3):
        await scene.told(PodEnded, 1)
    assert asked.count("pods") == 2
