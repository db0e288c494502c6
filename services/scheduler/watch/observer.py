"""The observer: one leased role that appends to the log what the Kubernetes API shows.

For each kind (`kinds`) it lists, then watches; each watch event becomes an event or nothing. Lists
come in pages and are appended page by page, so that a large cluster is never in memory as a whole.
An object that a list lacks ends only if a second list or a GET confirms it (`lists`). The next
watch events are compared only after the fold has reached what was appended (`event_writer`).
Periodically each kind is listed while its watch goes on, to find changes that neither reported.
This module decides nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from contextlib import aclosing

from services.scheduler.watch import lists, pods_and_nodes
from services.scheduler.watch.cell_keeper import CellKeeper
from services.scheduler.watch.event_writer import (
    BATCH_EVENTS,
    EventWriter,
    Relist,
    SchedulerFold,
)
from services.scheduler.watch.kinds import (
    CLUSTER_OBJECTS,
    KINDS,
    OPTIONAL,
    Kinds,
    Observed,
    absent,
    address,
    identity,
    known_count,
)
from services.scheduler.watch.lists import Check, Doubt, JudgedList, WholeList
from services.scheduler.watch.seen_specs import ReadOnlySeenSpecs, SeenSpecs
from shared.domain.cells import Cells
from shared.domain.fields import part
from shared.eventlog.port import EventLog, Lease
from shared.events.cluster_events import (
    ClusterListed,
    NodeEnded,
    NodeObserved,
    PodEnded,
    PodObserved,
)
from shared.kube.port import (
    Answer,
    Kind,
    Kube,
    KubeUnavailableError,
    Lost,
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
# A kind that the cluster does not serve may be installed later.
NOT_SERVED_S = 60.0
# A page of 500 pods takes the process a tenth of a second; decisions go first.
BETWEEN_PAGES_S = 0.1


class Observer:
    """Follows the cluster under a lease; `lead` is the work of `Leadership.run`. Every `relist_s`
    each kind is listed while its watch goes on.
    """

    def __init__(
        self,
        log: EventLog,
        kube: Kube,
        projector: SchedulerFold,
        schedulers: Collection[str],
        clock: Clock,
        relist_s: float = RELIST_S,
        cells: Cells | None = None,
    ) -> None:
        self._kube = kube
        self._projector = projector
        self._clock = clock
        self._relist_s = relist_s
        self._writer = EventWriter(log, projector, clock)
        self._seen_specs = SeenSpecs()
        self._kinds = Kinds(schedulers, self._seen_specs, cells)
        self._read_only_kinds = Kinds(schedulers, ReadOnlySeenSpecs(self._seen_specs), cells)
        self.cell = (
            CellKeeper(cells, schedulers, self._writer, kube, projector, clock)
            if cells is not None
            else None
        )
        # What lists and the watch show of the pods of a node that is being taken over.
        self._joining: dict[str, list[WatchEvent]] = {}
        self._checks: dict[Kind, Check] = {}
        # Identity -> version that a list or a GET has shown already, while the watch is behind it.
        self._ahead: dict[Kind, dict[str, str]] = {}
        self._reached: dict[Kind, str] = {}
        self._unlisted: set[Kind] = set()
        self._cluster_objects_listed = asyncio.Event()
        self._troubles: dict[Kind, str] = {}
        self._listing_since_s: dict[Kind, float] = {}
        self._out = logs.get("observer")

    def problem(self) -> str:
        """Return what this process cannot see of the cluster, for its readiness while it leads."""
        now_s = self._clock.monotonic_s()
        slow = [
            f"the list of {kind} has not ended after {now_s - since_s:.0f} s"
            for kind, since_s in self._listing_since_s.items()
            if now_s - since_s > SLOW_LIST_S and kind not in self._troubles
        ]
        return "; ".join([*self._troubles.values(), *slow])

    def reset(self) -> None:
        """List again: the log, its timeline or its history is another one."""
        self._writer.reset()
        self._seen_specs.clear()

    def folded(self, folded: Folded) -> None:
        """Note the fold's progress. Raises Refold if events appended here were lost with their
        history.
        """
        self._writer.folded(folded)

    async def lead(self, lease: Lease) -> None:
        """Follow every kind until the lease is lost."""
        await self._projector.wait_live()
        self._seen_specs.clear()
        self._unlisted = set(CLUSTER_OBJECTS)
        if self.cell is not None:
            self._unlisted.add("nodes")
            self.cell.begin()
        self._cluster_objects_listed.clear()
        try:
            with lease_losses():
                async with asyncio.TaskGroup() as group:
                    for kind in KINDS:
                        group.create_task(self._follow(kind, lease))
                    if self.cell is not None:
                        group.create_task(self.cell.run(lease))
        finally:
            self._troubles.clear()
            self._listing_since_s.clear()

    def _was_listed(self, kind: Kind) -> None:
        """Note a kind as listed. Pods are listed once every kind of cluster object was listed, or
        could not be.
        """
        self._unlisted.discard(kind)
        if not self._unlisted:
            self._cluster_objects_listed.set()

    async def _follow(self, kind: Kind, lease: Lease) -> None:
        if kind == "pods":
            await self._cluster_objects_listed.wait()
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
                self._out.warning(names.KUBE_RELIST, kind=kind, reason=type(reason).__name__)
            except KubeUnavailableError as error:
                self._was_listed(kind)
                if isinstance(error, UnknownKindError) and kind in OPTIONAL:
                    self._troubles.pop(kind, None)
                    self._listing_since_s.pop(kind, None)
                    await self._clock.sleep(NOT_SERVED_S)
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

    # -- lists

    async def _list(self, kind: Kind, lease: Lease) -> str:
        """List until a list is believed, and append what the lists show and lack. Return the
        version from which to watch.

        The fold must be at the head first. While it reads another history from its beginning, it
        knows no objects, so a list would seem to lack none.
        """
        await self._projector.wait_live()
        self._ahead.pop(kind, None)
        generation, doubt = self._writer.generation, None
        timeline = self._projector.state.folded.listings.timeline
        while True:
            listed = await self._append_pages(kind, doubt, generation, lease)
            self._was_listed(kind)
            judged = lists.judged(self._projector.state.folded, listed, doubt)
            unconfirmed: Sequence[Observed] = judged.unconfirmed
            self._log_oddities(judged)
            await self._writer.append(judged.confirmed, lease)
            if judged.may_ask:
                unconfirmed = await self._confirm(kind, unconfirmed, lease)
            elif judged.is_last:
                await self._writer.append(unconfirmed, lease)
                unconfirmed = ()
            doubt = judged.doubt(unconfirmed)
            if doubt is None:
                break
            await self._clock.sleep(PAUSE_S if doubt.empty else CONFIRM_AFTER_S)
        await self._append_listed(kind, timeline, lease)
        if self.cell is not None:
            self.cell.listed(kind, listed.present)
        self._reached[kind] = listed.version
        return listed.version

    async def _confirm(self, kind: Kind, ends: Sequence[Observed], lease: Lease) -> list[Observed]:
        """Ask for each object that a list was the first to lack. Append the ends that are
        confirmed, and what the other objects show; return the ends without a definite answer.
        """
        confirmed, unconfirmed, shown = list[Observed](), list[Observed](), list[Object]()
        for end in ends:
            answer = await self._get(end)
            if isinstance(answer, Lost) or answer.status not in (200, 404):
                unconfirmed.append(end)
            elif answer.ok and _uid(answer.body) == address(end).uid:
                shown.append(answer.body)
            else:
                confirmed.append(end)
        if shown:
            uids = [_uid(obj) for obj in shown]
            self._out.warning(names.LIST_LACKED, kind=kind, lacked=len(shown), uids=uids[:10])
        ahead = self._ahead.setdefault(kind, {})
        ahead.update({identity(kind, obj): _version(obj) for obj in shown})
        events = self._events(kind, [WatchEvent("ADDED", obj) for obj in shown])
        await self._append([*confirmed, *events], lease)
        return unconfirmed

    async def _get(self, end: Observed) -> Answer | Lost:
        state = self._projector.state.folded
        if isinstance(end, NodeEnded):
            return await self._kube.get_node(end.name)
        if isinstance(end, PodEnded) and (entry := state.ledger.pods.get(end.uid)) is not None:
            return await self._kube.get_pod(entry.pod.namespace, entry.pod.name)
        return Lost("no GET for this kind")

    def _log_oddities(self, judged: JudgedList) -> None:
        kind, version, doubt = judged.listed.kind, judged.listed.version, judged.before
        if judged.shows_set_back:
            self._out.warning(
                names.KUBE_SET_BACK,
                kind=kind,
                version=version,
                unbound=len(judged.listed.unbound),
                confirmed=doubt is not None,
            )
        if doubt is not None and doubt.lacked:
            self._out.warning(
                names.KUBE_MASS_ABSENCE_JUDGED,
                kind=kind,
                ended=len(judged.confirmed),
                doubted=len(doubt.lacked),
            )
        if judged.is_mass:
            count(names.MASS_ABSENCES, kind=kind)
            self._out.warning(
                names.KUBE_MASS_ABSENCE,
                kind=kind,
                absent=len(judged.unconfirmed),
                known=judged.known,
                version=version,
            )

    async def _append_listed(self, kind: Kind, timeline: int, lease: Lease) -> None:
        """Note in the log that a list begun on this timeline was appended whole, if the log waits
        for one."""
        if self._projector.state.folded.listings.lacks(kind):
            await self._writer.append([ClusterListed(kind, timeline)], lease)

    async def _append_pages(
        self, kind: Kind, doubt: Doubt | None, generation: int, lease: Lease
    ) -> WholeList:
        """Append one list page by page.

        A list that confirms another must not be older, and comes in pages, which are read from
        etcd. A pod that both lists show unbound is unbound.
        """
        present, version, unbound = set[str](), "", set[str]()
        unbound_before = doubt.listed.unbound if doubt is not None else frozenset()
        async with aclosing(self._kube.pages(kind, streamed=doubt is None)) as pages:
            async for page in pages:
                version = page.resource_version
                if doubt is not None and pods_and_nodes.is_older(version, doubt.listed.version):
                    raise KubeUnavailableError(
                        f"list of {kind}: version {version} came after {doubt.listed.version}, "
                        "which lacked known objects or showed nothing; "
                        "do several API servers disagree?"
                    )
                self._writer.require(generation)
                present.difference_update(identity(kind, obj) for obj in page.gone)
                present.update(identity(kind, obj) for obj in page.items)
                if page.gone:
                    deleted = [WatchEvent("DELETED", obj) for obj in page.gone]
                    await self._append_seen(kind, deleted, lease)
                ends = list[PodEnded]()
                if kind == "pods":
                    ledger = self._projector.state.folded.ledger
                    ends = pods_and_nodes.unbound(ledger, page.items)
                await self._writer.append([end for end in ends if end.uid in unbound_before], lease)
                unbound.update(end.uid for end in ends)
                await self._append(self._events_of_list(kind, page.items), lease)
        return WholeList(kind, present, version, frozenset(unbound))

    # -- checks

    async def _check(self, kind: Kind) -> Check:
        """List while the watch goes on and compare page by page; append nothing.

        The list is read from etcd. If it is older than what the watch reported, the cluster was set
        back, and a watch from a version that does not exist yet is silent (kube-apiserver 1.36).
        """
        check, reached = Check(kind), self._reached[kind]
        self._checks[kind] = check
        async with aclosing(self._kube.pages(kind)) as pages:
            async for page in pages:
                if pods_and_nodes.is_older(page.resource_version, reached):
                    raise Relist
                check.compare(
                    page.items,
                    page.resource_version,
                    lambda obj: bool(
                        self._events(kind, [WatchEvent("ADDED", obj)], self._read_only_kinds)
                    ),
                )
                await self._clock.sleep(BETWEEN_PAGES_S)
        return check

    async def _append_check(self, check: Check, lease: Lease) -> None:
        """Append changes that neither lists nor the watch reported. Objects that the check lacks
        are asked for one by one, or two lists must agree. The watch may still report older states,
        which are ignored.
        """
        kind, state = check.kind, self._projector.state.folded
        self._checks.pop(kind, None)
        lacking = absent(state, kind, check.present | check.touched, check.version)
        listed = WholeList(kind, check.present, check.version, frozenset())
        known_objects = known_count(state, kind)
        judged = JudgedList(listed, None, [], list(lacking), known_objects, False)
        if lacking and not judged.may_ask:
            raise Relist
        shown = check.unreported()
        events = self._events_of_list(kind, shown)
        self._ahead[kind] = {identity(kind, obj): _version(obj) for obj in shown}
        if events or lacking:
            count(names.MISSED_CHANGES, len(events) + len(lacking), kind=kind)
            self._out.warning(
                names.CHANGES_MISSED, kind=kind, shown=len(events), absent=len(lacking)
            )
        await self._append(events, lease)
        unconfirmed = await self._confirm(kind, lacking, lease)
        ended = {address(event).about: check.version for event in lacking}
        self._ahead[kind] = ended | self._ahead[kind]
        if unconfirmed:
            raise Relist

    async def _check_later(self, kind: Kind) -> Check:
        """Return the next check, tried until its list is whole."""
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

    # -- watches

    async def _watch(self, kind: Kind, version: str, lease: Lease) -> None:
        """Read the watch into a bounded buffer, so that a slow log slows the watch and does not
        fill the memory.
        """
        buffer: asyncio.Queue[WatchEvent] = asyncio.Queue(PENDING_EVENTS)
        generation = self._writer.generation
        reader = asyncio.create_task(self._read(kind, version, buffer))
        checking = asyncio.create_task(self._check_later(kind))
        try:
            while True:
                batch = await self._batch(buffer, reader)
                self._writer.require(generation)
                await self._append_seen(kind, batch, lease)
                if kind == "pods" and self.cell is not None:
                    await self.cell.let_go(lease)
                if checking.done():
                    await self._append_check(checking.result(), lease)
                    checking = asyncio.create_task(self._check_later(kind))
        finally:
            self._checks.pop(kind, None)
            reader.cancel()
            checking.cancel()
            await asyncio.gather(reader, checking, return_exceptions=True)

    async def _read(self, kind: Kind, version: str, buffer: asyncio.Queue[WatchEvent]) -> None:
        """Watch again from the last version if the server ends the stream."""
        while True:
            async for seen in self._kube.watch(kind, version):
                version = _version(seen.object) or version
                if seen.type != "BOOKMARK":
                    await buffer.put(seen)

    async def _batch(
        self, buffer: asyncio.Queue[WatchEvent], reader: asyncio.Task[None]
    ) -> list[WatchEvent]:
        batch = list[WatchEvent]()
        if buffer.empty():
            get = asyncio.ensure_future(buffer.get())
            try:
                done, _ = await asyncio.wait(
                    {get, reader}, timeout=PAUSE_S, return_when=asyncio.FIRST_COMPLETED
                )
            finally:
                get.cancel()  # A cancelled wait leaves it running; a finished one ignores this.
            if get not in done:
                if reader in done:
                    reader.result()
                return []
            batch.append(get.result())
        while len(batch) < BATCH_EVENTS and not buffer.empty():
            batch.append(buffer.get_nowait())
        return batch

    async def _append_seen(self, kind: Kind, batch: Sequence[WatchEvent], lease: Lease) -> None:
        """Append a batch of watch events. If an object has several, only the last is compared."""
        self._seen_specs.prune(self._projector.state.folded.ledger.pods)
        if batch:
            self._reached[kind] = _version(batch[-1].object) or self._reached.get(kind, "")
        if kind in self._checks:
            self._checks[kind].touched.update(identity(kind, seen.object) for seen in batch)
        await self._append(self._events(kind, _newest(batch)), lease)

    def _events_of_list(self, kind: Kind, items: Sequence[Object]) -> list[Observed]:
        """Return the events of listed objects. Waiting pods come last, so that decisions about them
        see the pods on the nodes.
        """
        events = self._events(kind, [WatchEvent("ADDED", obj) for obj in items])
        return sorted(events, key=lambda event: isinstance(event, PodObserved) and not event.node)

    def _events(
        self, kind: Kind, batch: Sequence[WatchEvent], kinds: Kinds | None = None
    ) -> list[Observed]:
        """Return the events of objects that are not older than a state which was shown already."""
        core, ahead = self._projector.state, self._ahead.get(kind, {})
        events = list[Observed]()
        for seen in batch:
            if pods_and_nodes.is_older(
                _version(seen.object), ahead.get(identity(kind, seen.object), "")
            ):
                continue
            if kinds is None:
                self._note(kind, seen)
            events += (kinds or self._kinds).events(core.folded, core.scheduler_name, kind, seen)
        return events

    # -- cells

    def _note(self, kind: Kind, seen: WatchEvent) -> None:
        """Note what concerns the cells: nodes, and pods of nodes that are being taken over."""
        if self.cell is not None:
            self.cell.note(kind, seen)
        node = str(part(seen.object, "spec").get("nodeName", "")) if self._joining else ""
        if kind == "pods" and node in self._joining:
            self._joining[node].append(seen)

    async def _append(self, events: Sequence[Observed], lease: Lease) -> None:
        """Append events. A node that this cell takes over comes after its pods."""
        nodes, others, joining = self._projector.state.folded.ledger.nodes, [], list[NodeObserved]()
        for event in events:
            if self.cell is not None and isinstance(event, NodeObserved):
                node = nodes.get(event.name)
                if node is None or node.observed is None:
                    joining.append(event)
                    continue
            others.append(event)
        await self._writer.append(others, lease)
        for node_event in joining:
            await self._join(node_event, lease)

    async def _join(self, node: NodeObserved, lease: Lease) -> None:
        """Append a node after the pods that are on it. What is seen of them meanwhile follows."""
        self._joining[node.name] = []
        try:
            pods = await self._kube.pods_on(node.name)
            ahead = self._ahead.setdefault("pods", {})
            ahead.update({_uid(pod): _version(pod) for pod in pods})
            ledger = self._projector.state.folded.ledger
            events = [self._kinds.pod_here(ledger, pod) for pod in pods]
            shown: list[Observed] = [event for event in events if event is not None]
            await self._writer.append([*shown, node], lease)
        finally:
            meanwhile = self._joining.pop(node.name)
        await self._writer.append(self._events("pods", _newest(meanwhile)), lease)


def _version(obj: Object) -> str:
    return str(obj.get("metadata", {}).get("resourceVersion", ""))


def _uid(obj: Object) -> str:
    return str(obj.get("metadata", {}).get("uid", ""))


def _newest(batch: Sequence[WatchEvent]) -> list[WatchEvent]:
    """The last event of each object, in order."""
    newest: dict[str, WatchEvent] = {}
    for seen in batch:
        newest.pop(_uid(seen.object), None)
        newest[_uid(seen.object)] = seen
    return list(newest.values())
