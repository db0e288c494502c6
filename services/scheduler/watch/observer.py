"""The observer: one leased role that tells the log what the Kubernetes API shows.

List, then watch, for each kind (`kinds`); each event becomes a fact or nothing. Lists come in pages
and are told page by page, so that a large cluster never stands in memory; what a list lacks is
asked once it is whole, and of another list where this one is doubted (`doubts`). The next events
are compared only after the fold has reached what was told (`teller`). Now and then a list beside
the watch finds what neither told (`checking`). Must not decide anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from contextlib import aclosing

from services.scheduler.watch import lists, pods_and_nodes
from services.scheduler.watch.event_writer import BATCH_EVENTS, EventWriter, Relist, SchedulerFold
from services.scheduler.watch.kinds import (
    KINDS,
    OPTIONAL,
    SURROUNDINGS,
    Kinds,
    Observed,
    absent,
    address,
    identity,
    known_count,
)
from services.scheduler.watch.lists import Check, Doubt, WholeList
from services.scheduler.watch.seen_specs import ReadOnlySeenSpecs, SeenSpecs
from shared.eventlog.port import EventLog, Lease
from shared.events.cluster_events import ClusterListed, PodObserved
from shared.kube.port import (
    Kind,
    Kube,
    KubeUnavailableError,
    Object,
    UnknownKindError,
    WatchEvent,
    WatchExpiredError,
)
from shared.runtime.clock import Clock
from shared.runtime.groups import lease_losses
from shared.runtime.projector import Folded
from shared.runtime.retry import jittered_s
from shared.telemetry import logs, names
from shared.telemetry.instruments import count

PENDING_EVENTS = 20_000
PAUSE_S = 0.5
LONGEST_PAUSE_S = 5.0
# A full list of a large cluster is expensive for the API server. The pause between two lists grows
# up to client-go's limit, and starts over once a watch has lasted (client-go's reflector).
LONGEST_RELIST_PAUSE_S = 30.0
LASTING_WATCH_S = 30.0
# A list that takes longer is reported by readiness: this process does not see the cluster.
SLOW_LIST_S = 20.0
CONFIRM_AFTER_S = 2.0
RELIST_S = 1800.0
BETWEEN_PAGES_S = 0.1
"""A page of 500 pods takes the process a tenth of a second: what it decides meanwhile comes first."""


class Observer:
    """Leads with a lease; `lead` is the work of `Leadership.run`. Every `relist_s` each kind is
    listed beside its watch.
    """

    def __init__(
        self, log: EventLog, kube: Kube, projector: SchedulerFold, schedulers: Collection[str], clock: Clock,
        relist_s: float = RELIST_S,
    ) -> None:  # fmt: skip
        self._kube = kube
        self._projector = projector
        self._clock = clock
        self._relist_s = relist_s
        self._teller = EventWriter(log, projector, clock)
        self._sightings = SeenSpecs()
        self._kinds = Kinds(schedulers, self._sightings)
        self._glances = Kinds(schedulers, ReadOnlySeenSpecs(self._sightings))
        self._checks: dict[Kind, Check] = {}
        self._ahead: dict[Kind, dict[str, str]] = {}
        self._reached: dict[Kind, str] = {}
        self._untried: set[Kind] = set()
        self._all_tried = asyncio.Event()
        self._troubles: dict[Kind, str] = {}
        self._listing_since_s: dict[Kind, float] = {}
        self._out = logs.get("observer")

    def problem(self) -> str:
        """Return what this process cannot see of the cluster, for readiness while it leads."""
        now_s = self._clock.monotonic_s()
        slow = [
            f"the list of {kind} has not ended after {now_s - since_s:.0f} s"
            for kind, since_s in self._listing_since_s.items()
            if now_s - since_s > SLOW_LIST_S and kind not in self._troubles
        ]
        return "; ".join([*self._troubles.values(), *slow])

    def reset(self) -> None:
        """Another log, timeline or history: list again."""
        self._teller.reset()
        self._sightings.clear()

    def folded(self, folded: Folded) -> None:
        """The fold went on. Raises Refold where what was told here was lost with the history that
        it stood in.
        """
        self._teller.folded(folded)

    async def lead(self, lease: Lease) -> None:
        """Follow every kind until the lease is lost."""
        await self._projector.wait_live()
        self._sightings.clear()
        self._untried = set(SURROUNDINGS)
        self._all_tried.clear()
        try:
            with lease_losses():
                async with asyncio.TaskGroup() as group:
                    for kind in KINDS:
                        group.create_task(self._follow(kind, lease))
        finally:
            self._troubles.clear()
            self._listing_since_s.clear()

    def _tried(self, kind: Kind) -> None:
        """Pods are told once the first list of all that surrounds them was told, or could not be
        had.
        """
        self._untried.discard(kind)
        if not self._untried:
            self._all_tried.set()

    async def _follow(self, kind: Kind, lease: Lease) -> None:
        if kind == "pods":
            await self._all_tried.wait()
        failures = relists = 0
        while True:
            watching_since_s = 0.0
            try:
                self._listing_since_s.setdefault(kind, self._clock.monotonic_s())
                version = await self._list(kind, lease)
                failures = 0
                self._troubles.pop(kind, None)
                self._listing_since_s.pop(kind, None)
                watching_since_s = self._clock.monotonic_s()
                await self._watch(kind, version, lease)
            except (WatchExpiredError, Relist) as reason:
                self._out.warning(names.RELIST, kind=kind, reason=type(reason).__name__)
            except KubeUnavailableError as error:
                self._tried(kind)
                if isinstance(error, UnknownKindError) and kind in OPTIONAL:
                    self._troubles.pop(kind, None)
                    self._listing_since_s.pop(kind, None)
                    await self._clock.sleep(self._relist_s)
                    continue
                self._troubles[kind] = f"{kind} of the cluster cannot be seen: {error}"
                count(names.KUBE_TROUBLE)
                self._out.warning(names.KUBE_UNAVAILABLE, kind=kind, problem=str(error))
                if not watching_since_s:
                    await self._clock.sleep(jittered_s(failures, PAUSE_S, LONGEST_PAUSE_S))
                    failures += 1
                    continue
            lasts = watching_since_s and (
                self._clock.monotonic_s() - watching_since_s >= LASTING_WATCH_S
            )
            relists = 0 if lasts else relists + 1
            # A compaction ends a watch, too: the first list after it is made at once.
            if relists > 1:
                pause_s = jittered_s(relists - 2, PAUSE_S, LONGEST_RELIST_PAUSE_S)
                await self._clock.sleep(pause_s)

    async def _list(self, kind: Kind, lease: Lease) -> str:
        """Tell what lists show and lack, until one is believed; the version from which to watch.
        The fold is at the head first: while it reads another history from its beginning, what a
        list shows ended would be nobody."""
        await self._projector.wait_live()
        self._ahead.pop(kind, None)
        generation, doubt = self._teller.generation, None
        timeline = self._projector.state.folded.listings.timeline
        while True:
            listed = await self._tell_pages(kind, doubt, generation, lease)
            self._tried(kind)
            found = lists.judged(self._projector.state.folded, listed, doubt)
            self._say(found)
            await self._teller.tell(found.ended, lease)
            doubt = found.doubt
            if doubt is None:
                break
            await self._clock.sleep(PAUSE_S if doubt.empty else CONFIRM_AFTER_S)
        await self._tell_listed(kind, timeline, lease)
        self._reached[kind] = listed.version
        return listed.version

    def _say(self, found: lists.Judged) -> None:
        """What is odd about a list, or was about the one before."""
        kind, version, before = found.listed.kind, found.listed.version, found.before
        if found.tells_of_set_back:
            unbound = len(found.listed.adrift)
            self._out.warning(
                names.SET_BACK,
                kind=kind,
                version=version,
                unbound=unbound,
                confirmed=before is not None,
            )
        if before is not None and before.lacked:
            self._out.warning(
                names.MASS_ABSENCE_JUDGED,
                kind=kind,
                ended=len(found.confirmed),
                doubted=len(before.lacked),
            )
        if found.is_mass:
            count(names.MASS_ABSENCES, kind=kind)
            self._out.warning(
                names.MASS_ABSENCE,
                kind=kind,
                absent=len(found.fresh),
                known=found.known,
                version=version,
            )

    async def _tell_listed(self, kind: Kind, timeline: int, lease: Lease) -> None:
        """A list that was begun on this timeline was told whole; said where somebody waits for it."""
        if self._projector.state.folded.listings.lacks(kind):
            await self._teller.tell([ClusterListed(kind, timeline)], lease)

    async def _check(self, kind: Kind) -> Check:
        """A list beside the watch, compared page by page and not told. It is read where writes are:
        older than what the watch told before, it is of a cluster that was set back, whose watch
        from a version to come is silent (kube-apiserver 1.36)."""
        check, before = Check(kind), self._reached[kind]
        self._checks[kind] = check
        async with aclosing(self._kube.pages(kind)) as pages:
            async for page in pages:
                if pods_and_nodes.is_older(page.resource_version, before):
                    raise Relist
                check.compare(
                    page.items,
                    page.resource_version,
                    lambda obj: bool(self._events(kind, [WatchEvent("ADDED", obj)], self._glances)),
                )
                await self._clock.sleep(BETWEEN_PAGES_S)
        return check

    async def _tell_check(self, check: Check, lease: Lease) -> None:
        """Tell what neither the lists nor the watch told. Where it lacks much, lists that confirm
        each other say what ended. The watch may yet tell how it was before: of whom this list told,
        nothing older is told any more."""
        kind, folded = check.kind, self._projector.state.folded
        self._checks.pop(kind, None)
        lacking = absent(folded, kind, check.present | check.touched, check.version)
        if pods_and_nodes.is_mass(len(lacking), known_count(folded, kind)):
            raise Relist
        untold = check.untold()
        found = [*self._shown(kind, untold), *lacking]
        ended = {address(event).about: check.version for event in lacking}
        self._ahead[kind] = {identity(kind, obj): _version(obj) for obj in untold} | ended
        if found:
            count(names.UNTOLD, len(found), kind=kind)
            self._out.warning(
                names.UNTOLD_FOUND, kind=kind, shown=len(found) - len(lacking), absent=len(lacking)
            )
        await self._teller.tell(found, lease)

    async def _tell_pages(
        self, kind: Kind, doubt: Doubt | None, generation: int, lease: Lease
    ) -> WholeList:
        """Tell one list part by part. One that is to confirm another is not older, and comes in
        pages: those are read where writes are. Of whom both show waiting the binding is undone."""
        present, version, adrift = set[str](), "", set[str]()
        once = doubt.listed.adrift if doubt is not None else frozenset()
        async with aclosing(self._kube.pages(kind, streamed=doubt is None)) as pages:
            async for page in pages:
                version = page.resource_version
                if doubt is not None and pods_and_nodes.is_older(version, doubt.listed.version):
                    raise KubeUnavailableError(
                        f"list of {kind}: version {version} came after {doubt.listed.version}, which lacked what was known or "
                        "showed nothing; several API servers that disagree?"
                    )
                self._teller.require(generation)
                present.difference_update(identity(kind, obj) for obj in page.gone)
                present.update(identity(kind, obj) for obj in page.items)
                if page.gone:
                    await self._tell_seen(
                        kind, [WatchEvent("DELETED", obj) for obj in page.gone], lease
                    )
                found = (
                    pods_and_nodes.adrift(self._projector.state.folded.ledger, page.items)
                    if kind == "pods"
                    else []
                )
                await self._teller.tell([event for event in found if event.uid in once], lease)
                adrift.update(event.uid for event in found)
                await self._teller.tell(self._shown(kind, page.items), lease)
        return WholeList(kind, present, version, frozenset(adrift))

    async def _watch(self, kind: Kind, version: str, lease: Lease) -> None:
        """Read the watch into a bounded buffer, so that a slow log slows the watch and never the
        memory.
        """
        buffer: asyncio.Queue[WatchEvent] = asyncio.Queue(PENDING_EVENTS)
        generation = self._teller.generation
        reader = asyncio.create_task(self._read(kind, version, buffer))
        checking = asyncio.create_task(self._check_later(kind))
        try:
            while True:
                batch = await self._batch(buffer, reader)
                self._teller.require(generation)
                await self._tell_seen(kind, batch, lease)
                if checking.done():
                    await self._tell_check(checking.result(), lease)
                    checking = asyncio.create_task(self._check_later(kind))
        finally:
            self._checks.pop(kind, None)
            reader.cancel()
            checking.cancel()
            await asyncio.gather(reader, checking, return_exceptions=True)

    async def _check_later(self, kind: Kind) -> Check:
        """The next list beside the watch, tried until it is whole: the watch goes on without it."""
        await self._clock.sleep(self._relist_s)
        failures = 0
        while True:
            try:
                return await self._check(kind)
            except KubeUnavailableError as error:
                count(names.KUBE_TROUBLE)
                self._out.warning(names.KUBE_UNAVAILABLE, kind=kind, problem=str(error))
                await self._clock.sleep(jittered_s(failures, PAUSE_S, self._relist_s))
                failures += 1

    async def _read(self, kind: Kind, version: str, buffer: asyncio.Queue[WatchEvent]) -> None:
        """Follow clean ends of the stream from the last version seen; a broken stream too, before a
        list is made.
        """
        while True:
            async for seen in self._kube.watch(kind, version):
                version = _version(seen.object) or version
                if seen.type != "BOOKMARK":
                    await buffer.put(seen)

    async def _batch(
        self, buffer: asyncio.Queue[WatchEvent], reader: asyncio.Task[None]
    ) -> list[WatchEvent]:
        if buffer.empty():
            get = asyncio.ensure_future(buffer.get())
            try:
                done, _ = await asyncio.wait(
                    {get, reader}, timeout=PAUSE_S, return_when=asyncio.FIRST_COMPLETED
                )
            finally:
                get.cancel()  # a wait that is cancelled leaves it running; done, it does not mind
            if get not in done:
                if reader in done:
                    reader.result()
                return []
            batch = [get.result()]
        else:
            batch = []
        while len(batch) < BATCH_EVENTS and not buffer.empty():
            batch.append(buffer.get_nowait())
        return batch

    async def _tell_seen(self, kind: Kind, batch: Sequence[WatchEvent], lease: Lease) -> None:
        """Several events of one object in a batch: only the last of each is compared, unless it
        went away in between.
        """
        self._sightings.prune(self._projector.state.folded.ledger.pods)
        if batch:
            self._reached[kind] = _version(batch[-1].object) or self._reached.get(kind, "")
        if kind in self._checks:
            self._checks[kind].touched.update(identity(kind, seen.object) for seen in batch)
        ahead = self._ahead.get(kind, {})
        fresh = [
            seen
            for seen in batch
            if not pods_and_nodes.is_older(
                _version(seen.object), ahead.get(identity(kind, seen.object), "")
            )
        ]
        await self._teller.tell(self._events(kind, _newest(fresh)), lease)

    def _shown(self, kind: Kind, items: Sequence[Object]) -> list[Observed]:
        """Pods that wait come last: whoever decides one knows by then who stands on the nodes."""
        events = self._events(kind, [WatchEvent("ADDED", obj) for obj in items])
        return sorted(events, key=lambda event: isinstance(event, PodObserved) and not event.node)

    def _events(
        self, kind: Kind, events: Sequence[WatchEvent], kinds: Kinds | None = None
    ) -> list[Observed]:
        core, kinds = self._projector.state, kinds or self._kinds
        own = core.scheduler_name
        return [event for seen in events for event in kinds.events(core.folded, own, kind, seen)]


def _version(obj: Object) -> str:
    return str(obj.get("metadata", {}).get("resourceVersion", ""))


def _newest(batch: Sequence[WatchEvent]) -> list[WatchEvent]:
    """The last event of each object, in order."""
    newest: dict[str, WatchEvent] = {}
    for seen in batch:
        uid = str(seen.object.get("metadata", {}).get("uid", ""))
        newest.pop(uid, None)
        newest[uid] = seen
    return list(newest.values())
