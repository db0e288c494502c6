"""Carries out what `cell_nodes` and `cell_pods` decide: events of the log, then patches.

The observer calls it under its lease. A pod is let go between two batches of the pods' watch, so
that no older view of it is appended afterwards. Must not know watches, nor what a cell is.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple, TypeGuard

from services.scheduler.watch.cell_nodes import CellNodes
from services.scheduler.watch.cell_pods import CellPods
from services.scheduler.watch.event_writer import ROLE, EventWriter, SchedulerFold
from shared.domain.cells import Cells
from shared.eventlog.port import Commit, Draft, Lease
from shared.kube.port import Answer, Kind, Kube, Lost, Object, WatchEvent
from shared.runtime.clock import Clock
from shared.telemetry import logs, names
from shared.telemetry.instruments import count

# How often nodes are taken over from other cells, and given to them.
EVERY_S = 0.5
# The longest pause before a refused patch is sent again.
LONGEST_PAUSE_S = 30.0
CONFLICT = 409


class Refused(NamedTuple):
    """The last refusal of a patch, how many there were in a row, and when it is sent again."""

    status: int
    times: int
    again_s: float


class CellKeeper:
    """Keeps the nodes and pods of one cell."""

    def __init__(
        self,
        cells: Cells,
        schedulers: Collection[str],
        writer: EventWriter,
        kube: Kube,
        projector: SchedulerFold,
        clock: Clock,
    ) -> None:
        self.nodes, self.pods = CellNodes(cells), CellPods(cells, schedulers)
        self._writer, self._kube = writer, kube
        self._projector, self._clock = projector, clock
        self._refused: dict[str, Refused] = {}
        self._out = logs.get("observer")

    def begin(self) -> None:
        """Begin under another lease."""
        self.nodes.left.clear()
        self.pods.begin()

    def note(self, kind: Kind, seen: WatchEvent) -> None:
        """Note a listed or changed object."""
        if kind == "nodes":
            self.nodes.note(seen.object, seen.type == "DELETED")
        elif kind == "pods":
            self.pods.note(seen.object, seen.type == "DELETED")

    def listed(self, kind: Kind, present: Collection[str]) -> None:
        """Forget what a complete list lacks."""
        if kind == "nodes":
            self.nodes.keep(present)
        elif kind == "pods":
            self.pods.keep(present)

    async def run(self, lease: Lease) -> None:
        """Keep the cell until the lease is lost."""
        while True:
            await self._clock.sleep(EVERY_S)
            await self.keep(lease)

    async def keep(self, lease: Lease) -> None:
        """Let nodes leave this log, give up those that left, and take those that no cell owns. Show
        the next cell the pods that were let go."""
        state = self._projector.state.folded
        for name in self.nodes.to_leave(state):
            drafts = self.nodes.leave(state, name)
            if drafts and await self._append("leave", name, drafts, lease):
                self.nodes.left.add(name)
        given, taken = self.nodes.to_give_back(state), self.nodes.to_take()
        passed = self.pods.to_pass_on(state)
        about = given.keys() | taken.keys() | passed.keys()
        self._refused = {name: refused for name, refused in self._refused.items() if name in about}
        for name, patch in (given | taken).items():
            if self._may_ask(name) and not await self._patch_node(name, patch, name in given):
                return
        for uid, status in passed.items():
            if self._may_ask(uid) and not await self._patch_pod(uid, status):
                return

    async def let_go(self, lease: Lease) -> None:
        """Let pods go that this cell could not place for too long."""
        state = self._projector.state.folded
        for drafts in self.pods.to_let_go(state, self._clock.monotonic_s()):
            await self._append("let-go", drafts[0].stream, drafts, lease)

    async def _append(self, verb: str, about: str, drafts: tuple[Draft, ...], lease: Lease) -> bool:
        commit_id = f"{verb}/{about}/{lease.epoch}/{self._projector.position}"
        now_us, seen = self._clock.now_us(), self._projector.place
        commit = Commit(commit_id, ROLE, lease.epoch, now_us, drafts, about, seen=seen)
        return await self._writer.append_whole(commit)

    async def _patch_node(self, name: str, patch: Sequence[Object], is_given: bool) -> bool:
        """Change the owner of a node; return whether the API server answered."""
        seen = self.nodes.seen.get(name)
        answer = await self._kube.patch_node(name, patch)
        if self._is_done(answer, name, "nodes"):
            # The watch may have shown a later state meanwhile.
            if self.nodes.seen.get(name) is seen:
                self.nodes.note(answer.body)
            self._out.info(names.CELL_NODE_LEFT if is_given else names.CELL_NODE_TAKEN, node=name)
        return isinstance(answer, Answer)

    async def _patch_pod(self, uid: str, patch: Object) -> bool:
        """Show the hops of a pod; return whether the API server answered."""
        seen = self.pods.seen.get(uid)
        if seen is None:
            return True
        answer = await self._kube.patch_pod_status(seen.namespace, seen.name, patch)
        if self._is_done(answer, uid, "pods"):
            if self.pods.seen.get(uid) is seen:
                self.pods.note(answer.body)
            count(names.CELL_PODS_PASSED)
            pod, cell = f"{seen.namespace}/{seen.name}", seen.route.next_cell
            self._out.info(names.CELL_POD_PASSED, pod=pod, to=cell)
        return isinstance(answer, Answer)

    def _may_ask(self, about: str) -> bool:
        refused = self._refused.get(about)
        return refused is None or self._clock.monotonic_s() >= refused.again_s

    def _is_done(self, answer: Answer | Lost, about: str, kind: Kind) -> TypeGuard[Answer]:
        """Return whether a patch was applied. A refusal is logged once, and the patch is sent again
        after a pause that doubles, unless only the version was an old one."""
        if isinstance(answer, Answer) and answer.ok:
            self._refused.pop(about, None)
            return True
        status = answer.status if isinstance(answer, Answer) else 0
        last = self._refused.get(about, Refused(status, 0, 0.0))
        times = last.times + 1 if last.status == status else 1
        pause_s = min(EVERY_S * 2 ** min(times, 10), LONGEST_PAUSE_S) if status != CONFLICT else 0.0
        self._refused[about] = Refused(status, times, self._clock.monotonic_s() + pause_s)
        count(names.CELL_PATCHES_REFUSED, kind=kind)
        if times == 1:
            self._out.warning(names.CELL_KEPT, kind=kind, about=about, problem=answer.message)
        return False
