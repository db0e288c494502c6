"""The observer: one leased role that tells the log what the Kubernetes API shows.

List, then watch, for nodes and for pods; each event becomes a fact or nothing (`news`). The next events are compared only after
the fold has reached what was appended, so that one change is told once. Where a list lacks much of what the log holds, a second
list, later, must agree before anything ends. Must not decide anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import Any

from services.scheduler.core import SchedulerCore
from services.scheduler.observing import news
from services.scheduler.observing.sightings import Sightings
from shared.eventlog.port import Commit, Conflict, Draft, EventLog, Fenced, Lease, Place
from shared.events import streams
from shared.events.cluster_facts import ClusterFact, NodeEnded, NodeObserved, PodObserved
from shared.kube.port import Kind, Kube, KubeUnavailableError, Listed, Seen, WatchExpiredError
from shared.runtime.appending import append_until_answered
from shared.runtime.clock import Clock
from shared.runtime.groups import lease_losses
from shared.runtime.leadership import LeaseLost
from shared.runtime.projector import Projector
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

Object = dict[str, Any]


class _Relist(Exception):
    """The log began anew: everything must be told again."""


class Observer:
    """Leads with a lease; `lead` is the work of `Leadership.run`."""

    def __init__(
        self, log: EventLog, kube: Kube, projector: Projector[SchedulerCore], schedulers: Collection[str], clock: Clock
    ) -> None:
        self._log = log
        self._kube = kube
        self._projector = projector
        self._schedulers = schedulers
        self._clock = clock
        self._generation = 0
        self._sightings = Sightings()
        self._troubles: dict[Kind, str] = {}
        self._out = logs.get("observer")

    def problem(self) -> str:
        """For readiness, while this process leads: what of the cluster it cannot see."""
        return "; ".join(self._troubles.values())

    def reset(self) -> None:
        """Another log, timeline or history: list again."""
        self._generation += 1
        self._sightings.clear()

    async def lead(self, lease: Lease) -> None:
        """Follow nodes and pods until the lease is lost."""
        await self._projector.wait_live()
        self._sightings.clear()
        try:
            with lease_losses():
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._follow("nodes", lease))
                    group.create_task(self._follow("pods", lease))
        finally:
            self._troubles.clear()

    async def _follow(self, kind: Kind, lease: Lease) -> None:
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
                count(names.KUBE_TROUBLE)
                self._out.warning(names.KUBE_UNAVAILABLE, kind=kind, problem=str(error))
                await self._clock.sleep(jittered_s(failures, PAUSE_S, LONGEST_PAUSE_S))
                failures += 1

    async def _list(self, kind: Kind, lease: Lease) -> str:
        """Tell what a list shows and what it lacks; the version from which to watch. Much that only this list lacks ends when the
        next one lacks it too; what went between the two lists no watch will tell, so that it ends by the newer one."""
        doubted: set[str] = set()
        version = ""
        while True:
            listed = await self._kube.list(kind)
            if doubted and news.is_older(listed.resource_version, version):
                raise KubeUnavailableError(
                    f"list of {kind}: version {listed.resource_version} came after {version}, which lacked {len(doubted)}; "
                    "several API servers that disagree?"
                )
            await self._tell(self._shown(kind, listed), lease)
            absent, version = self._absent(kind, listed), listed.resource_version
            if doubted:
                self._out.warning(names.MASS_ABSENCE_JUDGED, kind=kind, ended=len(absent), doubted=len(doubted))
            fresh = [fact for fact in absent if _address(fact)[1] not in doubted]
            known = self._projector.state.ledger.pods if kind == "pods" else self._projector.state.ledger.nodes
            if not news.is_mass(len(fresh), len(known)):
                break
            count(names.MASS_ABSENCES, kind=kind)
            self._out.warning(names.MASS_ABSENCE, kind=kind, absent=len(absent), known=len(known), version=version)
            doubted = {_address(fact)[1] for fact in absent}
            await self._clock.sleep(CONFIRM_AFTER_S)
        await self._tell(absent, lease)
        return version

    async def _watch(self, kind: Kind, version: str, lease: Lease) -> None:
        """Read the watch into a bounded buffer, so that a slow log slows the watch and never the memory."""
        buffer: asyncio.Queue[Seen] = asyncio.Queue(PENDING_EVENTS)
        generation = self._generation
        reader = asyncio.create_task(self._read(kind, version, buffer))
        try:
            while True:
                batch = await self._batch(buffer, reader)
                if generation != self._generation:
                    raise _Relist
                await self._tell_seen(kind, batch, lease)
        finally:
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)

    async def _read(self, kind: Kind, version: str, buffer: asyncio.Queue[Seen]) -> None:
        """Follow clean ends of the stream from the last version seen; a broken stream too, before a list is made."""
        while True:
            async for seen in self._kube.watch(kind, version):
                version = str(seen.object.get("metadata", {}).get("resourceVersion", version))
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
        facts = [self._fact(kind, seen) for seen in _newest(batch)]
        await self._tell([fact for fact in facts if fact is not None], lease)

    def _fact(self, kind: Kind, seen: Seen) -> ClusterFact | None:
        ledger = self._projector.state.ledger
        if kind == "nodes":
            return news.node_deleted(ledger, seen.object) if seen.type == "DELETED" else news.node_fact(ledger, seen.object)
        if seen.type == "DELETED":
            return news.pod_deleted(ledger, seen.object)
        return news.pod_fact(ledger, self._schedulers, seen.object, self._sightings)

    def _shown(self, kind: Kind, listed: Listed) -> list[ClusterFact]:
        ledger = self._projector.state.ledger
        facts = [
            news.node_fact(ledger, obj) if kind == "nodes" else news.pod_fact(ledger, self._schedulers, obj, self._sightings)
            for obj in listed.items
        ]
        return [fact for fact in facts if fact is not None]

    def _absent(self, kind: Kind, listed: Listed) -> Sequence[ClusterFact]:
        absent = news.absent_nodes if kind == "nodes" else news.absent_pods
        return absent(self._projector.state.ledger, listed.items, listed.resource_version)

    async def _tell(self, facts: Sequence[ClusterFact], lease: Lease) -> None:
        seen, generation = self._projector.place, self._generation
        for start in range(0, len(facts), BATCH_EVENTS):
            commits = [self._commit(fact, lease, seen) for fact in facts[start : start + BATCH_EVENTS]]
            outcomes = await append_until_answered(self._log, self._clock, self._out, commits)
            if any(isinstance(outcome, Fenced) for outcome in outcomes):
                raise LeaseLost(f"{ROLE}: a newer epoch than {lease.epoch} leads")
            if any(isinstance(outcome, Conflict) for outcome in outcomes):
                # No version is expected: it is the history that is another, and the fold has yet to see it.
                await self._clock.sleep(PAUSE_S)
                raise _Relist
            count(names.OBSERVED, len(commits))
            last = max(getattr(outcome, "last", 0) for outcome in outcomes)
            while not await self._projector.wait_for(last, REACH_TIMEOUT_S):
                if generation != self._generation:
                    raise _Relist
                self._out.warning(names.FOLD_BEHIND, position=last)

    def _commit(self, fact: ClusterFact, lease: Lease, seen: Place) -> Commit:
        stream, uid, about = _address(fact)
        version = fact.resource_version if not isinstance(fact, NodeEnded) else fact.cause
        suffix = "" if not isinstance(fact, PodObserved) else f"/{fact.node}"
        return Commit(
            commit_id=f"kube/{uid}/{type(fact).__name__}/{version}{suffix}",
            role=ROLE,
            epoch=lease.epoch,
            time_us=self._clock.now_us(),
            drafts=(Draft(stream, fact),),
            correlation=about,
            trace=trace_of(names.SPAN_OBSERVE, "", pod=uid),
            seen=seen,
        )


def _newest(batch: Sequence[Seen]) -> list[Seen]:
    """The last event of each object, in order."""
    newest: dict[str, Seen] = {}
    for seen in batch:
        uid = str(seen.object.get("metadata", {}).get("uid", ""))
        newest.pop(uid, None)
        newest[uid] = seen
    return list(newest.values())


def _address(fact: ClusterFact) -> tuple[str, str, str]:
    """Stream, uid, and what the story is about."""
    if isinstance(fact, NodeObserved | NodeEnded):
        return streams.node(fact.name), fact.uid, fact.name
    uid = fact.about.pod
    return streams.pod(uid), uid, uid
