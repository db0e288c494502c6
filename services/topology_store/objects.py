"""NodeResourceTopology objects as the API server shows them: listed, then watched, told to whoever
listens.

A cluster without the CustomResourceDefinition is waited for quietly. Must not know what is done
with the objects.
"""

from __future__ import annotations

from contextlib import aclosing
from typing import Any, Protocol

from shared.kube.port import Kind, Kube, KubeUnavailableError, Lost, Seen, WatchExpiredError
from shared.kube.rights import TOPOLOGY_GROUP
from shared.runtime.clock import Clock
from shared.telemetry import logs, names
from shared.telemetry.instruments import count

PAUSE_S = 1.0
NO_DEFINITION_S = 30.0
_KINDS: dict[str, Kind] = {
    "v1alpha2": "noderesourcetopologies",
    "v1alpha1": "noderesourcetopologies.v1alpha1",
}

Object = dict[str, Any]


class Listener(Protocol):
    """Hears of every object. With `listing` all is told anew: what is not shown until `complete`
    (its API version) is gone.
    """

    def listing(self) -> None: ...

    def seen(self, event: Seen) -> None: ...

    def complete(self, version: str) -> None: ...


class Objects:
    """Follows the objects and tells `listeners`; `served` is the API version in use, empty while
    there is none.
    """

    def __init__(self, kube: Kube, clock: Clock, *listeners: Listener) -> None:
        self.served = ""
        self._kube = kube
        self._clock = clock
        self._listeners = listeners
        self._out = logs.get("topology objects")

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            pause_s = PAUSE_S
            try:
                self.served = await self._newest_version()
                if self.served:
                    await self._follow(_KINDS[self.served])
                else:
                    pause_s = NO_DEFINITION_S
            except WatchExpiredError:
                pause_s = 0.0
            except KubeUnavailableError as error:
                count(names.KUBE_TROUBLE)
                self._out.warning(
                    names.KUBE_UNAVAILABLE, kind="noderesourcetopologies", problem=str(error)
                )
            await self._clock.sleep(pause_s)

    async def _newest_version(self) -> str:
        found = await self._kube.served_versions(TOPOLOGY_GROUP)
        if isinstance(found, Lost):
            raise KubeUnavailableError(found.message)
        served = next((version for version in _KINDS if version in found), "")
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
        while True:
            async for event in self._kube.watch(kind, version):
                version = str(event.object.get("metadata", {}).get("resourceVersion", version))
                if event.type != "BOOKMARK":
                    self._tell(event)

    async def _list(self, kind: Kind) -> str:
        """Tell all objects, part by part: together those of 5,000 nodes of 8 zones are a hundred
        megabytes.
        """
        version, began = "", False
        async with aclosing(self._kube.pages(kind, streamed=True)) as pages:
            async for page in pages:
                for listener in self._listeners if not began else ():
                    listener.listing()
                began, version = True, page.resource_version
                for found in page.gone:
                    self._tell(Seen("DELETED", found))
                for found in page.items:
                    self._tell(Seen("ADDED", found))
        return version

    def _tell(self, event: Seen) -> None:
        for listener in self._listeners:
            listener.seen(event)


def name_of(found: Object) -> str:
    """The object's name, which is its node's."""
    return str((found.get("metadata") or {}).get("name", ""))
