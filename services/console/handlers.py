"""What each endpoint answers: load the state of a moment, and return a view of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Literal

import msgspec

from services.console import plots, views
from services.console.api import Endpoint, Unanswerable
from services.console.live import Live, Sample
from services.console.past import Past
from services.console.room import Rooms
from services.console.views import NodeCell, PodCell
from services.console.what_if import WhatIf, WhatIfError
from services.replay import explain, listing, shapes, state_at, why_not
from services.replay.filters import Filter, FilterError, clock
from services.replay.fragmentation import ClassRoom
from services.replay.positions import position_of
from services.replay.words import Sentence
from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.state.state import SchedulerState
from services.top import model
from services.top.follow import NEWEST_SHOWN
from shared.domain.resources import CPU

MOST_EVENTS = 500

Moment = Annotated[
    str, msgspec.Meta(description="A position, head, -100, 10m ago, or a time (ISO 8601).")
]
Text = Annotated[str, msgspec.Meta(max_length=300)]


class At(msgspec.Struct, frozen=True):
    """A moment of the log; an empty `at` means now."""

    at: Moment = ""


class MapQuery(msgspec.Struct, frozen=True):
    """`since` returns only the nodes that changed after this position."""

    resource: Text = CPU
    at: Moment = ""
    shape: Annotated[
        Text, msgspec.Meta(description="How often this fits, such as cpu=4,memory=8Gi.")
    ] = ""
    label: Annotated[Text, msgspec.Meta(description="The node label to group by.")] = ""
    since: Annotated[int, msgspec.Meta(ge=0)] = 0


class TopQuery(msgspec.Struct, frozen=True):
    """Without a resource, the first one."""

    resource: Text = ""


class PodsQuery(msgspec.Struct, frozen=True):
    at: Moment = ""
    stage: Literal["", "pending", "reserved", "intended", "bound", "running"] = ""
    search: Annotated[Text, msgspec.Meta(description="A part of namespace/name.")] = ""


class NodeQuery(msgspec.Struct, frozen=True):
    node: Text
    at: Moment = ""


class StoryQuery(msgspec.Struct, frozen=True):
    pod: Annotated[Text, msgspec.Meta(description="Uid, name or namespace/name.")]


class WhyNotQuery(msgspec.Struct, frozen=True):
    pod: Text
    node: Text
    at: Moment = ""


class EventsQuery(msgspec.Struct, frozen=True):
    """Events after a position, or the newest ones."""

    after: Annotated[int, msgspec.Meta(ge=-1)] = -1
    limit: Annotated[int, msgspec.Meta(ge=1, le=MOST_EVENTS)] = 50
    node: Text = ""


class PlotQuery(msgspec.Struct, frozen=True):
    name: Text
    dark: bool = False


class WhatIfQuery(msgspec.Struct, frozen=True):
    """`change` is KEY=VALUE, several separated by spaces."""

    change: Annotated[Text, msgspec.Meta(min_length=1)]
    first: Moment = ""
    last: Moment = ""


class Now(msgspec.Struct, frozen=True):
    """The newest sample; `plots` are the names of the live plots."""

    position: int
    head: int
    time: str
    sample: Sample
    resources: list[str]
    labels: list[str]
    plots: list[str]


class MapAnswer(msgspec.Struct, frozen=True):
    """`is_whole` is False if only the changed nodes are in `nodes`; `gone` are removed ones."""

    position: int
    time: str
    resource: str
    nodes: list[NodeCell]
    names: int
    is_whole: bool = True


class PodsAnswer(msgspec.Struct, frozen=True):
    position: int
    time: str
    pods: list[PodCell]
    total: int


class EventsAnswer(msgspec.Struct, frozen=True):
    """Rows as of `topolog replay log --json`."""

    head: int
    events: list[dict[str, Any]]


class Handlers:
    """Answers each endpoint. Raises FilterError for a pod, node or moment that the log does not
    have.
    """

    def __init__(self, live: Live, what_if: WhatIf, cycle: CycleConfig) -> None:
        self._live, self._what_if, self._cycle = live, what_if, cycle
        self._log = live.log
        self._past, self._rooms = Past(live.log), Rooms(live, cycle)

    async def _state(self, at: str) -> tuple[SchedulerState, str]:
        """Return the state of a moment and its time."""
        if trouble := self._live.waits_for():
            raise Unanswerable(f"the console waits for {trouble}", "ask again in a few seconds")
        if not at:
            return self._live.state, clock(self._live.time_us) if self._live.time_us else ""
        position = await position_of(self._log, at, "at")
        time_us = (await self._log.read(position - 1, 1))[0].time_us
        return await self._past.at(position), clock(time_us)

    async def now(self, _query: At) -> Now:
        state, time = await self._state("")
        return Now(
            state.ledger.position,
            self._live.head,
            time,
            self._live.newest(),
            model.resources_of(state.ledger.nodes.values()),
            views.labels_of(state.ledger),
            list(plots.PLOTS),
        )

    async def top(self, query: TopQuery) -> model.Picture:
        """Return what `topolog top` draws. `rejected` counts since the console began."""
        state, _ = await self._state("")
        ledger, sample = state.ledger, self._live.newest()
        totals = model.totals_of(ledger, self._live.created_us, sample.time_us)
        resource = query.resource or model.resource_at(totals.resources, 0)
        rows = [model.node_row(node, resource) for node in ledger.nodes.values()]
        position, head = ledger.position, self._live.head
        events = (await self.events(EventsQuery(limit=NEWEST_SHOWN))).events
        newest = [
            model.Newest(
                row["position"],
                row["time"][11:19],
                Sentence(row["pod"], row["node"], row["text"]),
            )
            for row in events
        ]
        return model.Picture(
            position,
            head,
            len(rows),
            resource,
            rows,
            totals,
            sample.rates_per_s,
            sample.rejected,
            newest,
        )

    async def map(self, query: MapQuery) -> MapAnswer:
        shape = shapes.shape_of(query.shape)
        state, time = await self._state(query.at)
        ledger, changed = state.ledger, self._live.changed
        is_whole = bool(query.at) or query.since < self._live.begin or not query.since
        cells = views.map_of(
            ledger,
            query.resource,
            shape,
            query.label,
            lambda name: is_whole or changed.get(name, 0) > query.since,
        )
        return MapAnswer(ledger.position, time, query.resource, cells, len(ledger.nodes), is_whole)

    async def pods(self, query: PodsQuery) -> PodsAnswer:
        state, time = await self._state(query.at)
        ledger = state.ledger
        return PodsAnswer(
            ledger.position,
            time,
            views.pods_of(ledger, query.stage, query.search),
            len(ledger.pods),
        )

    async def node(self, query: NodeQuery) -> dict[str, Any]:
        state, time = await self._state(query.at)
        node = state.ledger.nodes.get(query.node)
        if node is None:
            remedy = "a node of /map, or a moment at which the node existed"
            raise FilterError(f"no node {query.node!r} at this moment", remedy)
        shown = state_at.node_state(state.ledger, node)
        labels = dict(node.observed.labels) if node.observed is not None else {}
        excluded = sorted(
            exclusion.cause for exclusion in state.exclusions.nodes.get(query.node, {}).values()
        )
        return {**shown, "time": time, "labels": labels, "excluded": excluded}

    async def story(self, query: StoryQuery) -> list[explain.Story]:
        return await explain.explain(self._log, query.pod)

    async def why_not(self, query: WhyNotQuery) -> why_not.WhyNot:
        return await why_not.why_not(self._log, query.pod, query.node, query.at, self._cycle)

    async def events(self, query: EventsQuery) -> EventsAnswer:
        head = await self._log.head()
        first = max(0, head - query.limit) + 1 if query.after < 0 else query.after + 1
        rows: list[dict[str, Any]] = []
        wanted = listing.Listing(Filter(node=query.node), first, head, limit=query.limit)
        if first <= head:
            await listing.list_events(self._log, wanted, rows.append)
        return EventsAnswer(head, rows)

    async def room(self, _query: At) -> list[ClassRoom]:
        await self._state("")
        return await self._rooms.now()

    async def samples(self, _query: At) -> list[Sample]:
        return list(self._live.samples)

    async def plot(self, query: PlotQuery) -> bytes:
        if query.name not in plots.PLOTS:
            raise FilterError(f"no plot {query.name!r}", f"one of {', '.join(plots.PLOTS)}")
        return plots.plot(query.name, self._live.samples, query.dark)

    async def what_if(self, query: WhatIfQuery) -> dict[str, Any]:
        try:
            return await self._what_if.ask(query.change.split(), query.first, query.last)
        except WhatIfError as error:
            raise Unanswerable(str(error), error.remedy) from error

    def endpoints(self) -> list[Endpoint[Any]]:
        """Return the API: path, meaning, parameters, answer."""
        table: list[tuple[str, str, type[Any], Any, Callable[[Any], Awaitable[Any]]]] = [
            ("/now", "The newest moment: counts, rates, lag", At, Now, self.now),
            ("/top", "What topolog top draws", TopQuery, model.Picture, self.top),
            ("/map", "Nodes by zones for one resource", MapQuery, MapAnswer, self.map),
            ("/pods", "Live pods, waiting ones first", PodsQuery, PodsAnswer, self.pods),
            ("/node", "One node: zones, charges, marks", NodeQuery, dict[str, Any], self.node),
            ("/story", "A pod's story", StoryQuery, list[explain.Story], self.story),
            ("/why-not", "Why not this node", WhyNotQuery, why_not.WhyNot, self.why_not),
            ("/events", "Events in words", EventsQuery, EventsAnswer, self.events),
            ("/room", "Room for frequent pod classes now", At, list[ClassRoom], self.room),
            ("/samples", "The samples of the plots", At, list[Sample], self.samples),
            ("/plot", "A live plot", PlotQuery, bytes, self.plot),
            ("/what-if", "Decide the log again", WhatIfQuery, dict[str, Any], self.what_if),
        ]
        return [Endpoint(*row) for row in table]
