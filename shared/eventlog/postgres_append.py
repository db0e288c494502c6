"""Group commit: one appender task per process sends all waiting commits in one statement. If
flushes are slow, the process whose turn it is appends what other processes have queued, too.

If the answer to a batch is lost, the batch is sent again with the same commit ids; what was
appended comes back as `Duplicate`.

Waking the listeners costs as much as an append. A batch wakes them unless this process did so often
(NOTIFY_EVERY_S); then one notification, as soon as it may be sent, covers all batches until then.
If it is lost, listeners find the events by their poll.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import asyncpg

from shared.eventlog.errors import LoginTooWeak, LogUnavailable
from shared.eventlog.limits import MAX_BATCH_BYTES, MAX_BATCH_COMMITS, MAX_QUEUED_JOBS
from shared.eventlog.port import Appended, Commit, Outcome
from shared.eventlog.postgres_batch import (
    APPEND_OR_QUEUE,
    QUEUED,
    Encoded,
    arguments,
    encode_commit,
    outcomes,
    statement,
)
from shared.eventlog.postgres_connection import LOST_CONNECTION
from shared.eventlog.postgres_watch import CHANNEL
from shared.eventlog.retrying import retried
from shared.telemetry import names
from shared.telemetry.instruments import count, observe, timed
from shared.telemetry.propagation import step
from shared.telemetry.reasons import plain

# Mean interval between notifications, and how many may come at once after a pause.
NOTIFY_EVERY_S = 0.01
NOTIFY_BURST = 3
_NOTIFY_TIMEOUT_S = 1.0
# Processes share flushes if the quickest of the last appends took longer, because then the flush is
# slow and not the machine. Below this, and for large batches, a request costs more CPU time than it
# saves of waiting.
SHARE_ABOVE_S = 0.005
SHARED_COMMITS = 64
_NOTIFY = f"SELECT pg_notify('{CHANNEL}', position::text) FROM counter"


class _Job:
    """Commits of one caller that are sent in one batch, and the future of their outcomes."""

    def __init__(self, commits: Sequence[Encoded]) -> None:
        self.commits = commits
        self.size_bytes = sum(commit.size_bytes for commit in commits)
        self.done: asyncio.Future[list[Outcome]] = asyncio.get_running_loop().create_future()

    def finish(self, answer: list[Outcome] | BaseException) -> None:
        if self.done.done():
            return
        if isinstance(answer, BaseException):
            self.done.set_exception(answer)
        else:
            self.done.set_result(answer)


class Appender:
    """Sends batches of at most MAX_BATCH_COMMITS commits over one connection, in order."""

    def __init__(
        self,
        connect: Callable[[], Awaitable[Any]],
        appended: Callable[[int], None],
        retry_for_s: float = 30.0,
    ) -> None:
        self._connect = connect
        self._appended = appended
        self._retry_for_s = retry_for_s
        self._queue: asyncio.Queue[_Job] = asyncio.Queue(MAX_QUEUED_JOBS)
        self._postponed: _Job | None = None
        self._connection: Any = None
        self._task: asyncio.Task[None] | None = None
        # A token bucket: the notifications sent so far use its rate up to `_spent_until_s`. No
        # further one may be sent before `_quiet_until_s`.
        self._quiet_until_s = self._spent_until_s = -math.inf
        self._must_notify = False
        self._latencies_s: deque[float] = deque(maxlen=16)

    async def append(self, commits: Sequence[Commit]) -> list[Outcome]:
        """Return one outcome per commit. Raises CommitInvalid before anything is sent, LoginTooWeak
        for a reader's login, LogUnavailable when retries run out."""
        encoded = [encode_commit(commit) for commit in commits]
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="log appender")
        answers: list[Outcome] = []
        with step(names.SPAN_APPEND, commits=len(encoded)):
            for chunk in _chunks(encoded):
                job = _Job(chunk)
                await self._queue.put(job)
                answers += await job.done
        return answers

    async def close(self) -> None:
        """Stop; waiting jobs fail with LogUnavailable."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._abandon(LogUnavailable("the log was closed"))
        if self._must_notify:
            await self._notify()
        await self._disconnect()

    async def _run(self) -> None:
        while True:
            jobs = [self._postponed or await self._next_job()]
            self._postponed = None
            self._gather(jobs)
            try:
                await self._serve(jobs)
            except asyncio.CancelledError:
                _finish_all(
                    jobs,
                    LogUnavailable(
                        "the log was closed; send the same commit ids again to learn the outcome"
                    ),
                )
                raise
            except Exception as error:
                _finish_all(jobs, error)

    async def _next_job(self) -> _Job:
        """Return the next job. Meanwhile notify of earlier batches when that is due."""
        while self._must_notify:
            try:
                async with asyncio.timeout_at(self._quiet_until_s):
                    return await self._queue.get()
            except TimeoutError:
                await self._notify()
        return await self._queue.get()

    async def _notify(self) -> None:
        """Notify of all batches so far. After any error the listeners' poll finds the events."""
        self._note_notified(asyncio.get_running_loop().time())
        if self._connection is None:
            return
        try:
            async with asyncio.timeout(_NOTIFY_TIMEOUT_S):
                await self._connection.fetchval(_NOTIFY)
        except Exception:
            await self._disconnect()

    def _note_notified(self, now_s: float) -> None:
        self._must_notify = False
        self._spent_until_s = max(self._spent_until_s, now_s) + NOTIFY_EVERY_S
        self._quiet_until_s = self._spent_until_s - (NOTIFY_BURST - 1) * NOTIFY_EVERY_S

    def _gather(self, jobs: list[_Job]) -> None:
        """Add waiting jobs up to the limits; postpone the job that no longer fits."""
        commits, size_bytes = len(jobs[0].commits), jobs[0].size_bytes
        while not self._queue.empty():
            job = self._queue.get_nowait()
            commits, size_bytes = commits + len(job.commits), size_bytes + job.size_bytes
            if commits > MAX_BATCH_COMMITS or size_bytes > MAX_BATCH_BYTES:
                self._postponed = job
                return
            jobs.append(job)

    async def _serve(self, jobs: list[_Job]) -> None:
        batch = [commit for job in jobs for commit in job.commits]
        answers = await self._send(batch)
        last = max((answer.last for answer in answers if isinstance(answer, Appended)), default=0)
        if last:
            self._appended(last)
        for outcome, commits in Counter(type(answer).__name__ for answer in answers).items():
            count(names.APPEND_OUTCOMES, commits, outcome=outcome)
        for job in jobs:
            job.finish(answers[: len(job.commits)])
            answers = answers[len(job.commits) :]

    async def _send(self, batch: list[Encoded]) -> list[Outcome]:
        observe(names.APPEND_BATCH_COMMITS, len(batch))
        try:
            return await retried(lambda: self._send_once(batch), LOST_CONNECTION, self._retry_for_s)
        except asyncpg.InsufficientPrivilegeError as error:
            raise LoginTooWeak(
                "this login may not append; give --database-url with the login topolog_service"
            ) from error
        except LOST_CONNECTION as error:
            raise LogUnavailable(
                f"append failed for {self._retry_for_s:g} s: {plain(error)}; "
                "is Postgres up, and does TOPOLOG_DATABASE_URL name it?"
            ) from error

    async def _send_once(self, batch: list[Encoded]) -> list[Outcome]:
        now_s = asyncio.get_running_loop().time()
        notify = now_s >= self._quiet_until_s
        self._must_notify |= not notify
        try:
            if self._connection is None:
                self._connection = await self._connect()
            with timed(names.APPEND_LATENCY):
                row = await self._answer(batch, notify)
        except BaseException:
            count(names.APPEND_RETRIES, 1)
            await self._disconnect()
            raise
        self._latencies_s.append(asyncio.get_running_loop().time() - now_s)
        answers = outcomes(batch, row)
        if notify and any(isinstance(answer, Appended) for answer in answers):
            self._note_notified(now_s)
        return answers

    async def _answer(self, batch: list[Encoded], notify: bool) -> Any:
        """Return the row of outcomes. Share the flush with other processes if flushes are slow."""
        ask = self._connection.fetchrow
        is_slow = min(self._latencies_s, default=0.0) > SHARE_ABOVE_S
        if is_slow and len(batch) <= SHARED_COMMITS:
            row = await ask(APPEND_OR_QUEUE, *arguments(batch, notify))
            if row["request"] is not None:
                row = await ask(QUEUED, row["request"])
            if row["outcome"]:
                return row
        query, values = statement(batch, notify)
        return await ask(query, *values)

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()

    def _abandon(self, error: LogUnavailable) -> None:
        jobs = [self._postponed] if self._postponed else []
        while not self._queue.empty():
            jobs.append(self._queue.get_nowait())
        _finish_all(jobs, error)


def _finish_all(jobs: Sequence[_Job], error: BaseException) -> None:
    for job in jobs:
        job.finish(error)


def _chunks(commits: list[Encoded]) -> list[list[Encoded]]:
    """Split at the limits of a batch, in order."""
    chunks: list[list[Encoded]] = []
    size_bytes = 0
    for commit in commits:
        full = chunks and (
            len(chunks[-1]) >= MAX_BATCH_COMMITS or size_bytes + commit.size_bytes > MAX_BATCH_BYTES
        )
        if full or not chunks:
            chunks.append([])
            size_bytes = 0
        chunks[-1].append(commit)
        size_bytes += commit.size_bytes
    return chunks
