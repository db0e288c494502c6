"""Follow NodeResourceTopology objects: list them, watch them, and pass each to the listeners.

A cluster without the CustomResourceDefinition is not an error. Must not know what listeners do with
the objects.
"""

from __future__ import annotations

from contextlib import aclosing
from typing import Any, Protocol

from shared.kube.port import Kind, Kube, KubeUnavailableError, Lost, WatchEvent, WatchExpiredError
from shared.kube.rights import TOPOLOGY_GROUP
from shared.runtime.clock import Clock
from shared.runtime.retry import jittered_s
from shared.telemetry import logs, names
from shared.telemetry.instruments import count

# A list of 5,000 nodes is a hundred megabytes: the pause before the next one grows up to
# client-go's limit, and starts over once a watch has lasted.
PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0
LASTING_WATCH_S = 30.0
NO_DEFINITION_S = 30.0
_KINDS: dict[str, Kind] = {
    "v1alpha2": "noderesourcetopologies",
    "v1alpha1": "noderesourcetopologies.v1alpha1",
}

Object = dict[str, Any]


class Listener(Protocol):
    """Receives every object. After `listing` all objects are passed again: an object that does not
    come before `complete` (with the API version in use) is gone."""

    def listing(self) -> None: ...

    def seen(self, event: WatchEvent) -> None: ...

    def complete(self, version: str) -> None: ...


class Objects:
    """Follows the objects for `listeners`. `served` is the API version in use, empty if there is
    none."""

    def __init__(self, kube: Kube, clock: Clock, *listeners: Listener) -> None:
        self.served = ""
        self._kube = kube
        self._clock = clock
        self._listeners = listeners
        self._watching_since_s: float | None = None
        self._out = logs.get("topology objects")

    async def run(self) -> None:
        failures = 0
        while True:
            self._watching_since_s = None
            is_expired = False
            try:
                self.served = await self._newest_version()
                if not self.served:
                    await self._clock.sleep(NO_DEFINITION_S)
                    continue
                await self._follow(_KINDS[self.served])
            except WatchExpiredError:
                is_expired = True
            except KubeUnavailableError as error:
                count(names.KUBE_TROUBLE)
                self._out.warning(
                    names.KUBE_UNAVAILABLE, kind="noderesourcetopologies", problem=str(error)
                )
            failures = 0 if self._watch_lasted() else failures + 1
            # A compaction ends a watch, too: the first list after it is made at once.
            if failures > 1 or not is_expired:
                await self._clock.sleep(jittered_s(max(failures - 1, 0), PAUSE_S, LONGEST_PAUSE_S))

    def _watch_lasted(self) -> bool:
        since_s = self._watching_since_s
        return since_s is not None and self._clock.monotonic_s() - since_s >= LASTING_WATCH_S

    async def _newest_version(self) -> str:
        versions = await self._kube.served_versions(TOPOLOGY_GROUP)
        if isinstance(versions, Lost):
            raise KubeUnavailableError(versions.message)
        served = next((version for version in _KINDS if version in versions), "")
        if served != self.served:
            self._out.info(
                names.TOPOLOGY_VERSION,
                version=served or "none: the CustomResourceDefinition is not installed",
            )
        return served

    async def _follow(self, kind: Kind) -> None:
        version = await self._list(kind)
        for listener in self._listeners:
            listener.complete(self.served)
        self._watching_since_s = self._clock.monotonic_s()
        while True:
            async for event in self._kube.watch(kind, version):
                version = str(event.object.get("metadata", {}).get("resourceVersion", version))
                if event.type != "BOOKMARK":
                    self._pass_on(event)

    async def _list(self, kind: Kind) -> str:
        """Pass on all objects part by part and return the list's version. The objects of 5,000
        nodes with 8 zones are a hundred megabytes together."""
        version, began = "", False
        async with aclosing(self._kube.pages(kind, streamed=True)) as pages:
            async for page in pages:
                for listener in self._listeners if not began else ():
                    listener.listing()
                began, version = True, page.resource_version
                for item in page.gone:
                    self._pass_on(WatchEvent("DELETED", item))
                for item in page.items:
                    self._pass_on(WatchEvent("ADDED", item))
        return version

    def _pass_on(self, event: WatchEvent) -> None:
        for listener in self._listeners:
            listener.seen(event)


def name_of(topology: Object) -> str:
    """Return the object's name, which is its node's."""
    return str((topology.get("metadata") or {}).get("name", ""))
