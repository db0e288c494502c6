"""The scheduler's processes: one core, its deciding loop, and the observer while it holds the
lease.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from services.scheduler.core import CoreConfig, SchedulerCore
from services.scheduler.handlers import Decider
from services.scheduler.snapshot.config import HoldSettings
from services.scheduler.watch.event_writer import ROLE, Relist
from services.scheduler.watch.kinds import absent, identity
from services.scheduler.watch.lists import Check
from services.scheduler.watch.observer import Observer
from services.scheduler.watch.pods_and_nodes import is_mass, is_younger
from shared.domain.cells import Cells
from shared.domain.state_hash import state_hash
from shared.eventlog.port import Lease
from shared.kube.port import KubeUnavailableError, Listed, WatchEvent
from shared.runtime.leadership import LeaseLost
from tests.simulation.cluster import Api, SimKube
from tests.simulation.fibers import Fiber
from tests.simulation.log import SimClock, SimLog
from tests.simulation.manifests import OURS
from tests.simulation.node import Add
from tests.simulation.process import Folded, Process
from tests.simulation.seats import Seat

TTL_S = 5.0


class Follow:
    """The watch of one kind: a list that waits to be recorded, then events in order. `watching`
    begins at the list's version, and `there` are the objects of then. `checked` is a list next to
    the watch that waits to be recorded.
    """

    def __init__(self) -> None:
        self.listed: Listed | None = None
        self.watching = False
        self.there: set[str] = set()
        self.events: list[WatchEvent] = []
        self.checked: Check | None = None


class SchedulerProcess(Process):
    """`lease` is the lease that the observer believes to hold. `asks`: its lists are calls, which
    may fail, come late, or lie. `outlived` are pods that a believed and recorded list lacked, and
    that are still in its fold.
    """

    def __init__(
        self,
        name: str,
        log: SimLog,
        clock: SimClock,
        api: Api,
        batch: int,
        mark: Callable[[str], None],
        asks: bool = False,
        hold_after_s: float = 0.0,
        cells: Cells | None = None,
    ) -> None:
        self.cells = cells
        super().__init__(name, log, mark)
        self.hold = HoldSettings(hold_after_s, share=50)
        self.clock, self.api, self.batch, self.asks = clock, api, batch, asks
        self.lease: Lease | None = None
        self.follows: dict[str, Follow] = {}
        self.hashes: list[tuple[int, str]] = []
        self.outlived: list[str] = []
        self.checks = tuple(f"check {kind}" for kind in api.kinds)
        api.hear.append(self._heard)
        self.begin()

    def begin(self) -> None:
        log, clock = cast(Any, self.log), cast(Any, self.clock)
        self.state = self._fresh()
        self.seat = Seat(self.log, "scheduler/topolog", lambda: self.holder, self.mark)
        self.decider = Decider(log, cast(Any, self.seat), clock, self.batch)
        self.observer = Observer(
            log,
            cast(Any, SimKube(self._answers)),
            cast(Any, self),
            (OURS,),
            clock,
            cells=self.cells,
        )
        self.lease, self.follows = None, {}

    def _fresh(self) -> SchedulerCore:
        config = CoreConfig(
            OURS, dirty_after_rejections=2, hold=self.hold, gang_timeout_s=5.0, cells=self.cells
        )
        return SchedulerCore(config)

    def reset(self) -> None:
        """Discard the state of another history, with its leases."""
        self.state = self._fresh()
        self.seat.forget()
        self.decider.reset(self.state)
        self.observer.reset()
        for kind in self.follows:
            self._anew(kind)

    @property
    def awaits(self) -> int:
        return 0 if self.runs("decide") else self.decider._must_reach

    def evolve(self, envelope: Any, event: Any) -> None:
        self.state.evolve(envelope, event)

    def folded(self, folded: Folded) -> None:
        self.decider.folded(self.state, folded)
        self.observer.folded(folded)
        self.hashes.append((self.position, state_hash(self.state.ledger)))

    def failed(self, fiber: Fiber, error: Exception) -> None:
        if isinstance(error, LeaseLost) and fiber.name != "decide":
            self.mark("fenced observer")
            self.resign()
        elif isinstance(error, Relist | KubeUnavailableError) and fiber.name in self.api.kinds:
            self.mark(f"list again: {type(error).__name__.strip('_')}")
            self._anew(fiber.name)
        elif isinstance(error, Relist) and fiber.name == "cell":
            self.mark("another log while a node leaves")
        elif isinstance(error, KubeUnavailableError) and fiber.name in self.checks:
            self.mark("check failed")
        else:
            super().failed(fiber, error)

    def offer(self, add: Add) -> None:
        """Offer everything that this process could do next."""
        if not self.runs("decide") and self.position >= self.awaits:
            add("decide", self.name, self.decide)
        if self.lease is None and self.live:
            add("lead", f"{self.name} observer", self.lead)
        if self.lease is not None:
            add("renew", f"{self.name} observer", self.renew)
            if self.cells is not None and self.live and not self.runs("cell"):
                add("keep", f"{self.name} cell", self.keep)
            pods = self.follows.get("pods")
            is_listed = pods is not None and pods.watching and pods.listed is None
            if self.cells is not None and is_listed and not self.runs("pods"):
                add("let go", f"{self.name} cell", self.let_go)
        for kind, follow in self.follows.items():
            self._offer_follow(add, kind, follow)

    def _offer_follow(self, add: Add, kind: str, follow: Follow) -> None:
        if self.runs(kind):
            return
        if follow.listed is None and not follow.watching:
            add("list", f"{self.name} {kind}", lambda: self.list(kind))
        elif follow.listed is not None or follow.events or follow.checked is not None:
            add("tell", f"{self.name} {kind}", lambda: self.tell(kind, 3))
        if (
            self.asks
            and follow.watching
            and follow.checked is None
            and not self.runs(f"check {kind}")
        ):
            add("check", f"{self.name} {kind}", lambda: self.check(kind))
        if follow.watching:
            add("cut", f"{self.name} {kind}", lambda: self._cut(kind))

    def look(self) -> None:
        """Learn the shares of the members."""
        self.decider.share_out(self.seat.look(), self.seat.taken().role)
        self.state.take_shard(self.decider._shard)

    def decide(self) -> str:
        """Decide one batch."""
        self.look()
        reserved_before = self.state.counters.reserved
        self.spawn("decide", self.decider._decide(self.state, self.seat.taken()))
        return f"at {self.position}, {self.state.counters.reserved - reserved_before} reserved"

    def keep(self) -> str:
        """Take nodes over, and give nodes away."""
        assert self.lease is not None
        assert self.observer.cell is not None
        self.spawn("cell", self.observer.cell.keep(self.lease))
        return ""

    def let_go(self) -> str:
        """Let pods go that waited for too long, between two batches of the watch."""
        assert self.lease is not None
        assert self.observer.cell is not None
        self.spawn("pods", self.observer.cell.let_go(self.lease))
        return ""

    def lead(self) -> str:
        """Try for the observer's lease."""
        self.lease = self.log.acquire_now(ROLE, self.holder, TTL_S)
        if self.lease is None:
            return "another leads"
        self.observer._seen_specs.clear()
        if self.observer.cell is not None:
            self.observer.cell.begin()
        self.follows = {kind: Follow() for kind in self.api.kinds}
        return f"epoch {self.lease.epoch}"

    def renew(self) -> str:
        """Renew the lease, or find that it is another's."""
        assert self.lease is not None
        if self.log.renew_now(self.lease, TTL_S):
            return "renewed"
        self.resign()
        return "lost"

    def resign(self) -> None:
        """Forget the lease, which another process holds."""
        self.lease, self.follows = None, {}
        names = (*self.api.kinds, *self.checks, "cell")
        self.drop([fiber for fiber in self.fibers if fiber.name in names])

    def _anew(self, kind: str) -> None:
        """List again; a check of what was watched is over."""
        self.follows[kind] = Follow()
        self.drop([fiber for fiber in self.fibers if fiber.name == f"check {kind}"])

    def check(self, kind: str) -> str:
        """Request a list in addition to the watch. Changes that it shows are recorded later."""
        follow = self.follows[kind]

        async def check() -> None:
            follow.checked = await self.observer._check(cast(Any, kind))

        self.spawn(f"check {kind}", check())
        return "asked"

    def list(self, kind: str) -> str:
        """Request a list. It is recorded later, and the watch begins now."""
        if self.asks:
            assert self.lease is not None
            self.spawn(kind, self._list_until_believed(kind, self.lease))
            return "asked"
        follow = self.follows[kind]
        follow.listed = self._answers(kind)
        return f"{len(follow.listed.items)} at {follow.listed.resource_version}"

    async def _list_until_believed(self, kind: str, lease: Lease) -> None:
        """Afterwards the watch goes on at the last list's version: no event will ever end a pod
        that it lacked.
        """
        version = await self.observer._list(cast(Any, kind), lease)
        outlived = sorted(self._known(kind, version) - self.follows[kind].there)
        self.outlived += [
            f"{each}, whom the list of {kind} at {version} lacked" for each in outlived
        ]

    def _known(self, kind: str, version: str) -> set[str]:
        """Return the objects of the fold, except those that are surely younger than the list."""
        ledger = self.state.ledger
        if kind == "devices":
            objects = [node.devices for node in ledger.nodes.values() if node.devices is not None]
            return {o.node for o in objects if not is_younger(o.resource_version, version)}
        versions = (
            {uid: pod.resource_version for uid, pod in ledger.pods.items() if not pod.booking}
            if kind == "pods"
            else {
                name: node.observed.resource_version
                for name, node in ledger.nodes.items()
                if node.observed is not None
            }
        )
        return {each for each, since in versions.items() if not is_younger(since, version)}

    def between_lists(self) -> set[str]:
        """Known and listed pods whose confirming list is yet to be read. None once one has gone, or
        if one is a large share: without it that list, too, would be doubted.
        """
        follow = self.follows.get("pods")
        asks = [
            fiber.ask for fiber in self.fibers if fiber.name == "pods" and fiber.ask is not None
        ]
        unread = any(
            ask.kind == "sleep" or (ask.kind == "list" and ask.answer is None) for ask in asks
        )
        if follow is None or not follow.watching or not unread:
            return set()
        listed = set(self.state.ledger.pods)
        gone = {seen.object["metadata"]["uid"] for seen in follow.events if seen.type == "DELETED"}
        return set() if listed & gone or is_mass(1, len(listed)) else listed & follow.there

    def _answers(self, kind: str) -> Listed:
        """Return the objects that the API server has now; the watch begins at this version."""
        if self.runs(f"check {kind}"):
            return self.api.listed(kind)
        follow = self.follows.get(kind, Follow())
        follow.watching, follow.events, listed = True, [], self.api.listed(kind)
        follow.there = {identity(cast(Any, kind), obj) for obj in listed.items}
        return listed

    def tell(self, kind: str, most: int) -> str:
        """Record the list, or the next events."""
        follow, lease = self.follows[kind], self.lease
        assert lease is not None
        if follow.listed is not None:
            listed, follow.listed = follow.listed, None
            present = {identity(cast(Any, kind), obj) for obj in listed.items}
            lacking = absent(self.state.folded, cast(Any, kind), present, listed.resource_version)
            events = [*self.observer._events_of_list(cast(Any, kind), listed.items), *lacking]
            timeline = self.state.folded.listings.timeline

            async def told() -> None:
                await self.observer._writer.append(events, lease)
                await self.observer._append_listed(cast(Any, kind), timeline, lease)

            self.spawn(kind, told())
            return f"list, {len(events)} facts"
        if follow.checked is not None:
            checked, follow.checked = follow.checked, None
            self.spawn(kind, self.observer._append_check(checked, lease))
            return "check"
        batch, follow.events = follow.events[:most], follow.events[most:]
        self.spawn(kind, self.observer._append_seen(cast(Any, kind), batch, lease))
        return ", ".join(f"{seen.type} {seen.object['metadata']['name']}" for seen in batch)

    def _cut(self, kind: str) -> str:
        """Break the watch, so that its events are lost and a new list must follow."""
        follow = self.follows[kind]
        lost = [seen for seen in follow.events if seen.type == "DELETED"]
        self._anew(kind)
        if lost:
            self.mark("delete missed")
        return f"{len(lost)} deletes missed"

    def _heard(self, kind: str, seen: WatchEvent) -> None:
        follow = self.follows.get(kind)
        if self.alive and follow is not None and follow.watching:
            follow.events.append(seen)
