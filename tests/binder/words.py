"""A binder at work: its real fold, loop and client against the simulated API over HTTP, and a log
in memory. Faults on demand.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from services.binder import core
from services.binder.announcer import Announcer
from services.binder.core import BinderState
from services.binder.handlers import ROLE, Binder
from services.binder.settings import BinderSettings
from shared.eventlog.memory import MemoryEventLog
from shared.eventlog.port import ANY_VERSION, Commit, Draft, Outcome
from shared.events import streams
from shared.events.catalog import Event
from shared.events.cluster_events import PodObserved
from shared.events.codec import decode
from shared.events.scheduling_events import PodReserved
from shared.kube.client import KubeClient
from shared.kube.port import Answer, Lost
from shared.runtime.clock import SYSTEM_CLOCK
from shared.runtime.leadership import Leadership
from shared.runtime.projector import Fold, Folded, Projector
from tests.ledger.given import pod
from tests.runtime.helpers import QUICK, running
from tests.simulator.contract import Api

SETTINGS = BinderSettings(
    database_url="postgresql://unused",
    nats_url="nats://unused",
    resend_after_s=0.01,
    resend_at_most_every_s=0.05,
)
Call = Callable[[], Awaitable[Answer | Lost]]


class FaultyKube(KubeClient):
    """The production client. Its bind calls use `fault(call)` while it is set. `binds` are
    the calls made.
    """

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.fault: Callable[[Call], Awaitable[Answer | Lost]] | None = None
        self.binds: list[tuple[str, str]] = []

    async def bind(
        self, namespace: str, name: str, uid: str, node: str, annotations: dict[str, str]
    ) -> Answer | Lost:
        self.binds.append((name, node))

        async def call() -> Answer | Lost:
            return await super(FaultyKube, self).bind(namespace, name, uid, node, annotations)

        return await (self.fault(call) if self.fault else call())


async def lost_before(_call: Call) -> Answer | Lost:
    """The request never arrives."""
    return Lost("cut off before")


async def lost_after(call: Call) -> Answer | Lost:
    """The request arrives, its answer does not."""
    await call()
    return Lost("cut off after")


def times(
    number: int, fault: Callable[[Call], Awaitable[Answer | Lost]]
) -> Callable[[Call], Awaitable[Answer | Lost]]:
    """Return a fault that happens for this many calls."""
    calls_left = [number]

    async def act(call: Call) -> Answer | Lost:
        calls_left[0] -= 1
        return await (fault(call) if calls_left[0] >= 0 else call())

    return act


class Cluster:
    """Pods in the simulated API and in the log."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.log = MemoryEventLog("binder")
        self.kube = FaultyKube(api.server.url)

    async def tell(self, stream: str, event: Event, expected: int = ANY_VERSION) -> Outcome:
        commit = Commit(
            f"told/{await self.log.head()}/{type(event).__name__}",
            "test",
            0,
            0,
            (Draft(stream, event, expected),),
        )
        return (await self.log.append([commit]))[0]

    async def reserved(self, name: str = "a", node: str = "n1") -> str:
        """Create a pod, append that it was observed and reserved, and return its uid."""
        created_pod = await self.api.pod(name)
        uid = str(created_pod["metadata"]["uid"])
        changed = msgspec.structs.replace(pod(name, uid=uid), namespace="apirec")
        await self.tell(streams.pod(uid), PodObserved(changed))
        await self.tell(
            streams.pod(uid), PodReserved(uid, node, predicted={"c": (0,)}, certain=True)
        )
        return uid

    async def events(self, uid: str) -> list[Event]:
        """Return the pod's events after its reservation."""
        return [decode(envelope) for envelope in await self.log.read_stream(streams.pod(uid), 2)]

    async def kinds(self, uid: str) -> list[str]:
        return [type(event).__name__ for event in await self.events(uid)]

    async def stands(self, name: str = "a") -> dict[str, Any]:
        """Return the pod's object in the API."""
        body: dict[str, Any] = (
            await self.api.ask("GET", f"/api/v1/namespaces/apirec/pods/{name}")
        ).json()
        return body

    async def ended_with(self, uid: str, kind: str) -> list[str]:
        """Wait until the pod's last event is of this type. Return the types of all events after the
        reservation.
        """
        import asyncio

        async with asyncio.timeout(10):
            while not (kinds := await self.kinds(uid)) or kinds[-1] != kind:  # noqa: ASYNC110 - the log has no notification
                await asyncio.sleep(0.01)
        return kinds

    @asynccontextmanager
    async def binder(self, announce: bool = False) -> AsyncIterator[Binder]:
        """Run a binder process: fold, lease and loop. It is cancelled at the end, as by a kill."""
        announcer = Announcer(self.kube, "topolog")
        announcer.enabled = announce
        made: list[Binder] = []

        def folded(state: BinderState, page: Folded) -> None:
            announcer.folded(state, page)
            for binder in made:
                binder.folded(state, page)

        projector: Projector[BinderState] = Projector(
            "binder", self.log, Fold(core.initial, core.evolve), after=folded, options=QUICK
        )
        made.append(Binder(self.log, self.kube, projector, SETTINGS, SYSTEM_CLOCK))
        leadership = Leadership(self.log, ROLE, f"binder-{id(projector)}", ttl_s=5.0)
        async with running(projector.run(), leadership.run(made[0].lead), announcer.run()) as tasks:
            yield made[0]
            failed = [task for task in tasks if task.done()]
            assert not failed, failed
