"""The observer: one leased role that tells the log what the Kubernetes API shows.

List, then watch, for each kind (`kinds`); each event becomes a fact or nothing. Lists come in pages and are told page by page, so
that a large cluster never stands in memory; what a list lacks is asked once it is whole. The next events are compared only after
the fold has reached what was appended, so that one change is told once. Where a list lacks much of what the log holds, or shows
nothing at all, a second list, later, must agree: before anything ends, and before what is there stays unseen until it changes.
Now and then a list beside the watch finds what neither told (`checking`). Must not decide anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from contextlib import aclosing

from services.scheduler.core import SchedulerCore
from services.scheduler.observing import news, recurring
from services.scheduler.observing.checking import Check
from services.scheduler.observing.kinds import KINDS, SURROUNDINGS, Kinds, Observed, identity, is_set_back, known_count
from services.scheduler.observing.sightings import Sightings, Unnoted
from shared.eventlog.port import Commit, Conflict, Draft, EventLog, Fenced, Lease, Place
from shared.events import streams
from shared.events.cluster_facts import ClusterListed, NodeEnded, NodeObserved, PodObserved
from shared.events.surroundings_facts import SurroundingFact, stream_of
from shared.kube.port import Kind, Kube, KubeUnavailableError, Object, Seen, WatchExpiredError
from shared.runtime.acknowledged import Acknowledged
from shared.runtime.appending import append_until_answered
from shared.runtime.clock import Clock
from shared.runtime.groups import lease_losses
from shared.runtime.leadership import LeaseLost
from shared.runtime.projector import Folded, Projector
from shared.runtime.retry import jittered_s
from shared.telemetry import logs, names
from shared.telemetry.instruments import count
from shared.telemetry.propagation import trace_of

ROLE = "observer"
BATCH_EVENTS = 500
PENDING_EVENTS = 20_000
PAUSE_S = 0.5
LONGEST_PAUSE_S = 5.0
REACH_TIMEOUT_S = 30.0
CONFIRM_AFTER_S = 2.0
RELIST_S = 1800.0
BETWEEN_PAGES_S = 0.1
"""A page of 500 pods takes the process a tenth of a second: what it decides meanwhile comes first."""


class _Relist(Exception):
    """The log began anew: everything must be told again."""


class Observer:
    """Leads with a lease; `lead` is the work of `Leadership.run`. Every `relist_s` each kind is listed beside its watch."""

    def __init__(
        self, log: EventLog, kube: Kube, projector: Projector[SchedulerCore], schedulers: Collection[str], clock: Clock,
        relist_s: float = RELIST_S,
    ) -> None:  # fmt: skip
        self._log = log
        self._kube = kube
        self._projector = projector
        self._clock = clock
        self._relist_s = relist_s
        self._generation = 0
        self._acknowledged = Acknowledged()
        self._sightings = Sightings()
        self._kinds = Kinds(schedulers, self._sightings)
        self._glances = Kinds(schedulers, Unnoted(self._sightings))
        self._checks: dict[Kind, Check] = {}
        self._ahead: dict[Kind, dict[str, str]] = {}
        self._reached: dict[Kind, str] = {}
        self._untried: set[Kind] = set()
        self._all_tried = asyncio.Event()
        self._troubles: dict[Kind, str] = {}
        self._out = logs.get("observer")

    def problem(self) -> str:
        """For readiness, while this process leads: what of the cluster it cannot see."""
        return "; ".join(self._troubles.values())

    def reset(self) -> None:
        """Another log, timeline or history: list again."""
        self._generation += 1
        self._acknowledged.clear()
        self._sightings.clear()

    def folded(self, folded: Folded) -> None:
        """The fold went on. Raises Refold where what was told here was lost with the history that it stood in."""
        self._acknowledged.check(folded)

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

    def _tried(self, kind: Kind) -> None:
        """Pods are told once the first list of all that surrounds them was told, or could not be had."""
        self._untried.discard(kind)
        if not self._untried:
            self._all_tried.set()

    async def _follow(self, kind: Kind, lease: Lease) -> None:
        if kind == "pods":
            await self._all_tried.wait()
        failures = 0
        while True:
            try:
                version = await self._list(kind, lease)
                failures = 0
                self._troubles.pop(kind, None)
                await self._watch(kind, version, lease)
            except (WatchExpiredError, _Relist) as reason:
                self._out.warning(names.RELIST, kind=kind, reason=type(reason).__name__)
            except KubeUnavailableError as error:
                self._troubles[kind] = f"{kind} of the cluster cannot be seen: {error}"
                self._tried(kind)
                count(names.KUBE_TROUBLE)
                self._out.warning(names.KUBE_UNAVAILABLE, kind=kind, problem=str(error))
                await self._clock.sleep(jittered_s(failures, PAUSE_S, LONGEST_PAUSE_S))
                failures += 1

    async def _list(self, kind: Kind, lease: Lease) -> str:
        """Tell what a list shows and what it lacks; the version from which to watch. Much that only this list lacks ends when the
        next one lacks it too, whatever else that one lacks; what little went between the two no watch will tell, so that it ends
        by the newer one. A list that shows nothing where nothing was known lacks nothing, and is asked for once more all the
        same. So is one older than what the log holds, or with pods waiting that were bound: where the next one agrees, the
        cluster was set back (etcd restored from a snapshot). The fold is at the head first: while it reads another history from
        its beginning, what a list shows ended would be nobody."""
        await self._projector.wait_live()
        self._ahead.pop(kind, None)
        generation, doubted, adrift = self._generation, set[str](), frozenset[str]()
        timeline = self._projector.state.followed.listings.timeline
        version = ""
        while True:
            before, once = version, adrift
            present, version, adrift = await self._tell_pages(kind, before, generation, lease, once)
            self._tried(kind)
            set_back = is_set_back(self._projector.state.followed, kind, version)
            absent = self._kinds.absent(self._projector.state.followed, kind, present, "" if set_back else version)
            again = not before and (set_back or bool(adrift))
            if again or (before and set_back):
                self._out.warning(names.SET_BACK, kind=kind, version=version, unbound=len(adrift), confirmed=bool(before))
            lacked_again = [fact for fact in absent if _address(fact)[1] in doubted]
            if doubted:
                self._out.warning(names.MASS_ABSENCE_JUDGED, kind=kind, ended=len(lacked_again), doubted=len(doubted))
            fresh, known = len(absent) - len(lacked_again), known_count(self._projector.state.followed, kind)
            if news.is_mass(fresh, known):
                count(names.MASS_ABSENCES, kind=kind)
                self._out.warning(names.MASS_ABSENCE, kind=kind, absent=fresh, known=known, version=version)
            elif not again:
                if present or before:
                    break
                await self._clock.sleep(PAUSE_S)
                continue
            doubted = {_address(fact)[1] for fact in absent} - {_address(fact)[1] for fact in lacked_again}
            await self._tell(lacked_again, lease)
            await self._clock.sleep(CONFIRM_AFTER_S)
        await self._tell(absent, lease)
        await self._tell_listed(kind, timeline, lease)
        self._reached[kind] = version
        return version

    async def _tell_listed(self, kind: Kind, timeline: int, lease: Lease) -> None:
        """A list that was begun on this timeline was told whole; said where somebody waits for it."""
        if self._projector.state.followed.listings.lacks(kind):
            await self._tell([ClusterListed(kind, timeline)], lease)

    async def _check(self, kind: Kind) -> Check:
        """A list beside the watch, compared page by page and not told. It is read where writes are: older than what the watch
        told before, it is of a cluster that was set back, whose watch from a version to come is silent (kube-apiserver 1.36)."""
        check, before = Check(kind), self._reached[kind]
        self._checks[kind] = check
        async with aclosing(self._kube.pages(kind)) as pages:
            async for page in pages:
                if news.is_older(page.resource_version, before):
                    raise _Relist
                check.compare(
                    page.items, page.resource_version, lambda obj: bool(self._facts(kind, [Seen("ADDED", obj)], self._glances))
                )
                await self._clock.sleep(BETWEEN_PAGES_S)
        return check

    async def _tell_check(self, check: Check, lease: Lease) -> None:
        """Tell what neither the lists nor the watch told. Where it lacks much, lists that confirm each other say what ended. The
        watch may yet tell how it was before: of whom this list told, nothing older is told any more."""
        kind, followed = check.kind, self._projector.state.followed
        self._checks.pop(kind, None)
        absent = self._kinds.absent(followed, kind, check.present | check.touched, check.version)
        if news.is_mass(len(absent), known_count(followed, kind)):
            raise _Relist
        untold = check.untold()
        found = [*self._shown(kind, untold), *absent]
        ended = {_address(fact)[2]: check.version for fact in absent}
        self._ahead[kind] = {identity(kind, obj): _version(obj) for obj in untold} | ended
        if found:
            count(names.UNTOLD, len(found), kind=kind)
            self._out.warning(names.UNTOLD_FOUND, kind=kind, shown=len(found) - len(absent), absent=len(absent))
        await self._tell(found, lease)

    async def _tell_pages(
        self, kind: Kind, before: str, generation: int, lease: Lease, once: Collection[str]
    ) -> tuple[set[str], str, frozenset[str]]:
        """Tell one list part by part; the identities of all that it has, its version, and who of it waits though bound. A list
        that is to confirm the one of version `before` is not older, and comes in pages: those are read where writes are. Of whom
        it shows waiting as the one before did (`once`) the binding is undone."""
        present, version, adrift = set[str](), "", set[str]()
        async with aclosing(self._kube.pages(kind, streamed=not before)) as pages:
            async for page in pages:
                version = page.resource_version
                if before and news.is_older(version, before):
                    raise KubeUnavailableError(
                        f"list of {kind}: version {version} came after {before}, which lacked what was known or showed nothing; "
                        "several API servers that disagree?"
                    )
                if generation != self._generation:
                    raise _Relist
                present.difference_update(identity(kind, obj) for obj in page.gone)
                present.update(identity(kind, obj) for obj in page.items)
                if page.gone:
                    await self._tell_seen(kind, [Seen("DELETED", obj) for obj in page.gone], lease)
                found = news.adrift(self._projector.state.ledger, page.items) if kind == "pods" else []
                await self._tell([fact for fact in found if fact.uid in once], lease)
                adrift.update(fact.uid for fact in found)
                await self._tell(self._shown(kind, page.items), lease)
        return present, version, frozenset(adrift)

    async def _watch(self, kind: Kind, version: str, lease: Lease) -> None:
        """Read the watch into a bounded buffer, so that a slow log slows the watch and never the memory."""
        buffer: asyncio.Queue[Seen] = asyncio.Queue(PENDING_EVENTS)
        generation = self._generation
        reader = asyncio.create_task(self._read(kind, version, buffer))
        checking = asyncio.create_task(self._check_later(kind))
        try:
            while True:
                batch = await self._batch(buffer, reader)
                if generation != self._generation:
                    raise _Relist
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

    async def _read(self, kind: Kind, version: str, buffer: asyncio.Queue[Seen]) -> None:
        """Follow clean ends of the stream from the last version seen; a broken stream too, before a list is made."""
        while True:
            async for seen in self._kube.watch(kind, version):
                version = _version(seen.object) or version
                if seen.type != "BOOKMARK":
                    await buffer.put(seen)

    async def _batch(self, buffer: asyncio.Queue[Seen], reader: asyncio.Task[None]) -> list[Seen]:
        if buffer.empty():
            get = asyncio.ensure_future(buffer.get())
            try:
                done, _ = await asyncio.wait({get, reader}, timeout=PAUSE_S, return_when=asyncio.FIRST_COMPLETED)
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

    async def _tell_seen(self, kind: Kind, batch: Sequence[Seen], lease: Lease) -> None:
        """Several events of one object in a batch: only the last of each is compared, unless it went away in between."""
        self._sightings.prune(self._projector.state.ledger.pods)
        if batch:
            self._reached[kind] = _version(batch[-1].object) or self._reached.get(kind, "")
        if kind in self._checks:
            self._checks[kind].touched.update(identity(kind, seen.object) for seen in batch)
        ahead = self._ahead.get(kind, {})
        fresh = [seen for seen in batch if not news.is_older(_version(seen.object), ahead.get(identity(kind, seen.object), ""))]
        await self._tell(self._facts(kind, _newest(fresh)), lease)

    def _shown(self, kind: Kind, items: Sequence[Object]) -> list[Observed]:
        """Pods that wait come last: whoever decides one knows by then who stands on the nodes."""
        facts = self._facts(kind, [Seen("ADDED", obj) for obj in items])
        return sorted(facts, key=lambda fact: isinstance(fact, PodObserved) and not fact.node)

    def _facts(self, kind: Kind, events: Sequence[Seen], kinds: Kinds | None = None) -> list[Observed]:
        core, kinds = self._projector.state, kinds or self._kinds
        own = core.config.scheduler_name
        return [fact for seen in events for fact in kinds.facts(core.followed, own, kind, seen)]

    async def _tell(self, facts: Sequence[Observed], lease: Lease) -> None:
        seen, generation = self._projector.place, self._generation
        for start in range(0, len(facts), BATCH_EVENTS):
            commits = [self._commit(fact, lease, seen) for fact in facts[start : start + BATCH_EVENTS]]
            outcomes = await append_until_answered(self._log, self._clock, self._out, commits)
            if again := recurring.again(commits, outcomes, seen):
                commits, outcomes = again, await append_until_answered(self._log, self._clock, self._out, again)
            if any(isinstance(outcome, Fenced) for outcome in outcomes):
                raise LeaseLost(f"{ROLE}: a newer epoch than {lease.epoch} leads")
            if any(isinstance(outcome, Conflict) for outcome in outcomes):
                # No version is expected: it is the history that is another, and the fold has yet to see it.
                await self._clock.sleep(PAUSE_S)
                raise _Relist
            count(names.OBSERVED, len(commits))
            for commit, outcome in zip(commits, outcomes, strict=True):
                self._acknowledged.keep(commit, outcome, self._projector.position)
            last = max(getattr(outcome, "last", 0) for outcome in outcomes)
            while not await self._projector.wait_for(last, REACH_TIMEOUT_S):
                if generation != self._generation:
                    raise _Relist
                self._out.warning(names.FOLD_BEHIND, position=last)
        if generation != self._generation:
            raise _Relist

    def _commit(self, fact: Observed, lease: Lease, seen: Place) -> Commit:
        stream, uid, about = _address(fact)
        suffix = f"/{fact.node}" if isinstance(fact, PodObserved) else ""
        if isinstance(fact, SurroundingFact):
            suffix = f"@{seen.position}"  # what was ended by false lists may be told again as it was
        return Commit(
            commit_id=f"kube/{uid}/{type(fact).__name__}/{_told(fact)}{suffix}",
            role=ROLE,
            epoch=lease.epoch,
            time_us=self._clock.now_us(),
            drafts=(Draft(stream, fact),),
            correlation=about,
            trace=trace_of(names.SPAN_OBSERVE, "", pod=uid),
            seen=seen,
        )


def _told(fact: Observed) -> str:
    """What tells a fact from another one of its kind about the same."""
    if isinstance(fact, NodeEnded):
        return fact.cause
    return str(fact.timeline) if isinstance(fact, ClusterListed) else fact.resource_version


def _version(obj: Object) -> str:
    return str(obj.get("metadata", {}).get("resourceVersion", ""))


def _newest(batch: Sequence[Seen]) -> list[Seen]:
    """The last event of each object, in order."""
    newest: dict[str, Seen] = {}
    for seen in batch:
        uid = str(seen.object.get("metadata", {}).get("uid", ""))
        newest.pop(uid, None)
        newest[uid] = seen
    return list(newest.values())


def _address(fact: Observed) -> tuple[str, str, str]:
    """Stream, uid, and what the story is about."""
    if isinstance(fact, SurroundingFact):
        return stream_of(fact), stream_of(fact), stream_of(fact)
    if isinstance(fact, NodeObserved | NodeEnded):
        return streams.node(fact.name), fact.uid, fact.name
    if isinstance(fact, ClusterListed):
        return streams.listing(fact.kind), streams.listing(fact.kind), fact.kind
    uid = fact.about.pod
    return streams.pod(uid), uid, uid
