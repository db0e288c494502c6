"""Plays a workload: creates pods through the HTTP API as a user would, at their virtual times, and
deletes finished pods.

If too many pods wait, it creates no more. It follows each pod by the cluster's changes. This module
does not know how pods are scheduled or admitted.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator
from itertools import islice

import msgspec
import structlog

from services.simulator.clock import VirtualClock
from services.simulator.cluster_port import Change, ClusterPort
from services.simulator.feasibility import Room, infeasible
from services.simulator.http_client import HttpClient, Unreachable
from services.simulator.pace import Pace
from services.simulator.progress import ENDLESS, Progress, Summary
from services.simulator.workload import LABEL, Arrival, Task, manifest

log = structlog.get_logger()
TICK_S = 0.02
PACE_INTERVAL_S = 0.5
RETRY_S = 0.5
MAX_TRIES = 20
# An endless workload creates no pod while this many feasible pods wait.
ENDLESS_HOLD = 400
# Infeasible pods that an endless workload leaves in the cluster; it deletes older ones.
INFEASIBLE_KEPT = 4
_CREATED, _EXISTS = 201, 409


class Play(msgspec.Struct, frozen=True):
    """The workload to play: its name, the schedulerName and namespace of its pods, and their number
    (ENDLESS: without end).
    """

    workload: str
    pods: int
    scheduler: str
    namespace: str = "default"
    keep_finished: bool = False


class Player:
    """Plays `arrivals` on the server of `client`. `cluster` shows what happens to the pods. `keep`
    saves the progress for a later process.
    """

    def __init__(
        self,
        play: Play,
        arrivals: Iterator[Arrival],
        rooms: tuple[Room, ...],
        cluster: ClusterPort,
        client: HttpClient,
        clock: VirtualClock,
        pace: Pace,
        progress: Progress | None = None,
        keep: Callable[[], None] = lambda: None,
    ) -> None:
        self.progress = progress or Progress(play.pods)
        self._play = play
        self._arrivals = arrivals
        self._rooms = rooms
        self._cluster = cluster
        self._client = client
        self._clock = clock
        self._pace = pace
        self._keep = keep
        self._late_s = 0.0
        self._began_at: tuple[float, float] | None = None
        self._ended_at: tuple[float, float] | None = None
        self._finished: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        self._tasks: set[asyncio.Task[None]] = set()
        self._over = asyncio.Event()

    def summary(self) -> Summary:
        """Return the state of the workload."""
        virtual_s, real_s = self._ended_at or (self._clock.now(), self._clock.real_elapsed())
        began_virtual_s, began_real_s = self._began_at or (virtual_s, real_s)
        return self.progress.summary(
            time.monotonic(), virtual_s - began_virtual_s, real_s - began_real_s
        )

    async def run(self) -> None:
        """Play until every pod was created and every feasible pod has ended."""
        self._began_at = self._clock.now(), self._clock.real_elapsed()
        self.progress.begins(time.monotonic())
        stop = self._cluster.listen("pods", self._on_change)
        self._resume()
        deleting = asyncio.create_task(self._delete_finished())
        pacing = asyncio.create_task(self._keep_pace())
        try:
            await self._create_all()
            self._note_end()
            await self._over.wait()
            self._ended_at = self._clock.now(), self._clock.real_elapsed()
            await self._finished.join()
        finally:
            stop()
            for task in (deleting, pacing, *self._tasks):
                task.cancel()

    def _resume(self) -> None:
        """Count pods of this workload that an earlier process created."""
        for entry in self._cluster.list("pods", label_selector=f"{LABEL}={self._play.workload}"):
            self._note("ADDED", entry.obj)

    async def _create_all(self) -> None:
        """Create the missing pods. If an earlier process created some, the rest moves forward to
        the current time.
        """
        asked_before, missing, begun_s = (
            self.progress.asked_before,
            set(self.progress.missing_before),
            self._clock.now(),
        )
        self._late_s = begun_s
        arrivals = self._arrivals if self._endless else islice(self._arrivals, self.progress.total)
        for number, arrival in enumerate(arrivals):
            exists = self._cluster.get("pods", arrival.task.name, self._play.namespace) is not None
            wanted = number >= asked_before or arrival.task.name in missing
            if exists or wanted:
                self.progress.expect_infeasible(infeasible([arrival.task], self._rooms))
            if number < asked_before:
                self._late_s = begun_s - arrival.at_s
            if wanted and not exists:
                await self._until(arrival.at_s)
                self.progress.asked(arrival.task.name)
                self._spawn(self._create(arrival.task))
                self._withdraw_infeasible()
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    async def _until(self, at_s: float) -> None:
        """Wait for a virtual moment, and until fewer pods wait. This delays all later arrivals."""
        while (wait_s := self._clock.real_until(at_s + self._late_s)) > 0:  # noqa: ASYNC110  (the rate may change meanwhile)
            await asyncio.sleep(min(wait_s, PACE_INTERVAL_S))
        held_since = self._clock.now()
        hold = min(self._pace.hold, ENDLESS_HOLD) if self._endless else self._pace.hold
        if self.progress.waiting + len(self._tasks) < hold:
            return
        while self.progress.waiting + len(self._tasks) >= hold:  # noqa: ASYNC110  (many things make room)
            await asyncio.sleep(TICK_S)
        self._late_s += self._clock.now() - held_since

    @property
    def _endless(self) -> bool:
        return self._play.pods == ENDLESS

    def _withdraw_infeasible(self) -> None:
        """Delete the oldest pods that fit nowhere, as a user would give them up. In a workload
        without end they would pile up.
        """
        if self._endless:
            for name in self.progress.withdrawable(INFEASIBLE_KEPT):
                self._finished.put_nowait((self._play.namespace, name))

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _create(self, task: Task) -> None:
        body = msgspec.json.encode(
            manifest(task, self._play.scheduler, self._play.namespace, self._play.workload)
        )
        sent_s = time.monotonic()
        status, answer = await self._ask(
            "POST", f"/api/v1/namespaces/{self._play.namespace}/pods", body
        )
        if (
            status == _CREATED
            and self._cluster.get("pods", task.name, self._play.namespace) is None
        ):
            return  # seen and ended before the answer to its creation: it is counted
        if status == _CREATED:
            self.progress.created(
                msgspec.json.decode(answer, type=_Created).metadata.uid, task.name, sent_s
            )
        elif status != _EXISTS:
            log.warning(
                "pod was not created",
                pod=task.name,
                status=status,
                answer=answer[:300].decode(errors="replace"),
            )

    async def _delete_finished(self) -> None:
        """Delete finished pods. Each deletion is saved first: after a kill, this record is the only
        trace of the pod.
        """
        while True:
            finished = [await self._finished.get()]
            while not self._finished.empty():
                finished.append(self._finished.get_nowait())
            self._keep()
            for namespace, name in finished:
                await self._delete(namespace, name)
                self._finished.task_done()

    async def _delete(self, namespace: str, name: str) -> None:
        status, answer = await self._ask(
            "DELETE", f"/api/v1/namespaces/{namespace}/pods/{name}", b""
        )
        if status >= 300 and status != 404:
            log.warning(
                "pod was not deleted",
                pod=name,
                status=status,
                answer=answer[:300].decode(errors="replace"),
            )

    async def _ask(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        """Send a request, and repeat it while the server is away or busy. Return (0, reason) if it
        remains so.
        """
        reason = b""
        for _ in range(MAX_TRIES):
            try:
                status, answer = await self._client.request(method, path, body)
            except Unreachable as error:
                status, answer = 0, str(error).encode()
            if status not in (0, 429, 500, 503, 504):
                return status, answer
            reason = answer
            await asyncio.sleep(RETRY_S)
        return 0, reason

    def _on_change(self, change: Change) -> None:
        self._note(change.kind, change.entry.obj)

    def _note(self, kind: str, obj: dict[str, object]) -> None:
        metadata = obj["metadata"]
        labels = metadata.get("labels") if isinstance(metadata, dict) else None
        if not labels or labels.get(LABEL) != self._play.workload:
            return
        stage = self.progress.seen(kind, obj, time.monotonic())
        self._note_end()
        if stage == "succeeded" and kind != "DELETED" and not self._play.keep_finished:
            self._finished.put_nowait((metadata["namespace"], metadata["name"]))  # type: ignore[index]

    def _note_end(self) -> None:
        if self.progress.done:
            self._over.set()

    async def _keep_pace(self) -> None:
        while True:
            await asyncio.sleep(PACE_INTERVAL_S)
            rate = self._pace.next(self._clock.rate, self.progress.waiting)
            if rate != self._clock.rate:
                self._clock.set_rate(rate)


class _CreatedMeta(msgspec.Struct):
    uid: str


class _Created(msgspec.Struct):
    metadata: _CreatedMeta
