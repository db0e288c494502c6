"""Keep one child alive: start it, wait until it is ready, restart it with growing delays, stop it
with a grace period.

Knows nothing of other children or of the program.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import time
from typing import Any

from services.embedded.child import (
    ChildEvent,
    ChildEventKind,
    ChildSpec,
    FileReady,
    OnEvent,
    ignore_event,
)
from services.embedded.environment import inherited
from services.embedded.errors import ChildFailedError
from services.embedded.probes import is_ready
from services.embedded.spawn import log_tail, spawn

_PROBE_INTERVAL_S = 0.01
_PROBE_INTERVAL_MAX_S = 0.2
_LAST_WORDS_S = 1.0


class ChildProcess:
    """One supervised child. `start` returns when it is ready for the first time; then it is kept
    alive.
    """

    def __init__(self, spec: ChildSpec, on_event: OnEvent = ignore_event) -> None:
        self.spec = spec
        self.restarts = 0
        self.failure: asyncio.Future[ChildFailedError] = asyncio.get_running_loop().create_future()
        self._on_event = on_event
        self._process: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()
        self._ready_once = False
        self._failures = 0
        self._stopping = False

    @property
    def pid(self) -> int | None:
        """The process id, None if no process runs."""
        running = self._process is not None and self._process.returncode is None
        return self._process.pid if running and self._process is not None else None

    @property
    def is_ready(self) -> bool:
        """True if the child runs and has been ready since its last start."""
        return self._ready.is_set()

    @property
    def was_ready(self) -> bool:
        """True if the child has ever been ready."""
        return self._ready_once

    async def start(self) -> None:
        """Start the child and return when it is ready. Raises ChildFailedError if it never becomes
        ready.
        """
        self._task = asyncio.create_task(self._keep_alive(), name=f"keep-{self.spec.name}-alive")
        await self.wait_ready()

    async def wait_ready(self) -> None:
        """Return when the child is ready (again). Raises ChildFailedError if it was given up."""
        ready: asyncio.Future[bool] = asyncio.ensure_future(self._ready.wait())
        first_of: set[asyncio.Future[Any]] = {ready, self.failure}
        try:
            await asyncio.wait(first_of, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ready.cancel()
        if self.failure.done():
            raise self.failure.result()

    async def stop(self) -> None:
        """Stop the child: its stop signal, then SIGKILL after the grace period. Safe at any time,
        and twice.
        """
        self._stopping = True
        process = self._process
        if process is not None and process.returncode is None:
            self._signal(self.spec.stop_signal)
            try:
                async with asyncio.timeout(self.spec.stop_grace_s):
                    await process.wait()
            except TimeoutError:
                self._kill_group(process.pid)
                await process.wait()
            if self._task is not None:
                await asyncio.wait({self._task}, timeout=_LAST_WORDS_S)
        await self._end_task()

    def hang_up(self) -> None:
        """Send SIGHUP, at which servers reload their configuration."""
        self._signal(signal.SIGHUP)

    async def _end_task(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        process = self._process
        if process is not None and process.returncode is None:
            self._kill_group(process.pid)
            await process.wait()
        self._ready.clear()

    async def _keep_alive(self) -> None:
        while not self._stopping:
            reason = await self._one_life()
            if self._stopping:
                return
            delay_s = self.spec.restart.delay_s(self._failures, self._ready_once)
            if delay_s is None:
                self._give_up(reason)
                return
            await asyncio.sleep(delay_s)
            self.restarts += 1

    async def _one_life(self) -> str:
        try:
            process = await self._spawn()
        except (OSError, subprocess.SubprocessError) as error:
            self._failures += 1
            return f"cannot be started: {error}"
        self._process = process
        started_s = time.monotonic()
        self._emit(
            ChildEventKind.RESTARTED if self.restarts else ChildEventKind.STARTED, process.pid
        )
        beginning = asyncio.ensure_future(self._begin(process))
        try:
            return await self._until_dead(process, started_s)
        finally:
            beginning.cancel()

    async def _begin(self, process: asyncio.subprocess.Process) -> None:
        """End the standard input of a child that waits for it."""
        if self.spec.begins is not None and process.stdin is not None:
            await self.spec.begins()
            process.stdin.close()

    async def _until_dead(self, process: asyncio.subprocess.Process, started_s: float) -> str:
        hung = not await self._until_ready(process) and process.returncode is None
        if hung:
            self._kill_group(process.pid)
        exit_code = await process.wait()
        self._count_life(time.monotonic() - started_s)
        self._emit(
            ChildEventKind.STOPPED if self._stopping else ChildEventKind.DIED,
            process.pid,
            exit_code,
        )
        return (
            f"was not ready within {self.spec.ready_timeout_s:g} s"
            if hung
            else f"ended with exit code {exit_code}"
        )

    async def _spawn(self) -> asyncio.subprocess.Process:
        spec = self.spec
        if isinstance(spec.ready, FileReady):
            spec.ready.path.unlink(missing_ok=True)
        extra = await spec.prepare() if spec.prepare is not None else {}
        env = {**inherited(os.environ, spec.passes), **spec.env, **extra}
        return await spawn(
            spec.argv,
            env,
            spec.log_path,
            spec.identity,
            spec.parent_death_signal,
            spec.cwd,
            subprocess.DEVNULL if spec.begins is None else subprocess.PIPE,
        )

    async def _until_ready(self, process: asyncio.subprocess.Process) -> bool:
        deadline_s = time.monotonic() + self.spec.ready_timeout_s
        pause_s = _PROBE_INTERVAL_S
        while process.returncode is None and time.monotonic() < deadline_s:
            if await is_ready(self.spec.ready, process.pid) and process.returncode is None:
                self._ready_once = True
                self._ready.set()
                self._emit(ChildEventKind.READY, process.pid)
                return True
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 1.3, _PROBE_INTERVAL_MAX_S)
        return False

    def _count_life(self, lived_s: float) -> None:
        healthy = self._ready.is_set() and lived_s >= self.spec.restart.healthy_after_s
        self._failures = 1 if healthy else self._failures + 1
        self._ready.clear()

    def _give_up(self, reason: str) -> None:
        tail = log_tail(self.spec.log_path)
        error = ChildFailedError(
            f"{self.spec.name} {reason}, {self._failures} times in a row"
            + ("; its log ends with:" if tail else ""),
            f"Read the log {self.spec.log_path}",
            tail,
        )
        self._emit(ChildEventKind.GAVE_UP, 0)
        self.failure.set_result(error)

    def _emit(self, kind: ChildEventKind, pid: int, exit_code: int | None = None) -> None:
        self._on_event(ChildEvent(kind, self.spec.name, pid, exit_code, self.restarts))

    def _signal(self, number: signal.Signals) -> None:
        if self.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    @staticmethod
    def _kill_group(pid: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
