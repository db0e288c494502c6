"""Lists of NodeResourceTopology objects come part by part, are complete only at their end, and
begin again if they are cut off.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

from services.topology_store.objects import Objects, name_of
from shared.kube.port import KubeUnavailableError, Listed, WatchEvent, WatchExpiredError
from shared.runtime.clock import SYSTEM_CLOCK
from tests.runtime.helpers import running, until
from tests.topology_store.words import Hands


def named(*names: str) -> list[dict[str, Any]]:
    return [{"metadata": {"name": name, "resourceVersion": "1"}} for name in names]


class Parts:
    """An API server that answers with these lists in turn, each in parts. A list with an error is
    cut off there.
    """

    def __init__(self, *lists: list[Listed | KubeUnavailableError]) -> None:
        self._lists = list(lists)
        self.watched: list[str] = []

    async def served_versions(self, group: str) -> tuple[str, ...]:
        return ("v1alpha2",)

    async def pages(self, kind: str, streamed: bool = False) -> AsyncGenerator[Listed]:
        for part in self._lists.pop(0):
            if isinstance(part, KubeUnavailableError):
                raise part
            yield part

    async def watch(self, kind: str, version: str) -> AsyncIterator[WatchEvent]:
        self.watched.append(version)
        await asyncio.Event().wait()
        yield WatchEvent("BOOKMARK", {})


class Heard:
    """A listener that records its calls."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def listing(self) -> None:
        self.told.append("listing")

    def seen(self, event: WatchEvent) -> None:
        self.told.append(f"{event.type} {name_of(event.object)}")

    def complete(self, version: str) -> None:
        self.told.append(f"complete {version}")


async def followed(*lists: list[Listed | KubeUnavailableError]) -> tuple[list[str], list[str]]:
    """Return the calls until the watch began, and the version from which it began."""
    kube, heard = Parts(*lists), Heard()
    objects = Objects(kube, Hands(), heard)  # type: ignore[arg-type]
    async with running(objects.run()):
        await until(lambda: bool(kube.watched))
    return heard.told, kube.watched


async def test_a_list_comes_part_by_part_and_is_complete_at_its_end() -> None:
    parts: list[Listed | KubeUnavailableError] = [
        Listed(named("a", "b"), ""),
        Listed(named("c"), "7", gone=named("b")),
    ]
    calls = ["listing", "ADDED a", "ADDED b", "DELETED b", "ADDED c", "complete v1alpha2"]
    assert await followed(parts) == (calls, ["7"])


async def test_a_list_that_is_cut_off_is_never_complete_and_begins_again() -> None:
    cut: list[Listed | KubeUnavailableError] = [
        Listed(named("a"), "5"),
        KubeUnavailableError("reset"),
    ]
    calls = ["listing", "ADDED a", "listing", "ADDED a", "ADDED b", "complete v1alpha2"]
    assert await followed(cut, [Listed(named("a", "b"), "6")]) == (calls, ["6"])


async def test_an_empty_list_begins_and_ends_too() -> None:
    assert await followed([Listed([], "3")]) == (["listing", "complete v1alpha2"], ["3"])


async def test_lists_back_off_if_every_watch_expires() -> None:
    """Without a pause a server that answers 410 to each watch was sent full lists without end."""

    class Expired(Parts):
        async def watch(self, kind: str, version: str) -> AsyncIterator[WatchEvent]:
            self.watched.append(version)
            raise WatchExpiredError(kind)
            yield WatchEvent("BOOKMARK", {})

    full: list[Listed | KubeUnavailableError] = [Listed(named("a"), "5")]
    kube = Expired(*[full] * 1000)
    objects = Objects(kube, SYSTEM_CLOCK, Heard())  # type: ignore[arg-type]
    async with running(objects.run()):
        await asyncio.sleep(2.0)
    assert 2 <= len(kube.watched) <= 5
