"""Compute bytes from the memory of this moment in a child process, while this process changes it.

1. A fork shares all memory until one side writes to it, so that the child reads the state of the
   fork, whatever is folded afterwards. It stops this process for about 15 ms per GB.
2. The child only computes and writes to a pipe. It closes every other descriptor, or a connection
   and its lease would outlive this process, and ends at its next write if this process has ended.
3. It collects no garbage, which would write to all of its memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
from collections.abc import Awaitable, Callable

# A state of this many pods or nodes takes about 20 ms to dump and to compress. Smaller ones need no
# child.
LARGE = 2000
_PIECE = 1 << 16
_MAX_DESCRIPTOR = 1 << 20


class Child:
    """Computes in a child process, one thing at a time."""

    def __init__(self) -> None:
        self._pid = 0
        self._running: asyncio.Task[None] | None = None

    async def begin(
        self, compute: Callable[[], bytes], then: Callable[[bytes | None], Awaitable[None]]
    ) -> None:
        """Wait until the former child is done, and begin `compute()`. `then` gets its result
        later, or None if there is none. This process may change the memory that `compute` reads as
        soon as this returns."""
        await self.finished()
        reading, writing = os.pipe()
        try:
            self._pid = os.fork()
        except OSError:
            os.close(reading)
            os.close(writing)
            return await then(None)
        if self._pid == 0:
            _compute_and_exit(compute, writing)
        os.close(writing)
        result = asyncio.ensure_future(asyncio.to_thread(_read, reading, self._pid))
        self._running = asyncio.create_task(self._deliver(result, then))
        return None

    async def finished(self) -> None:
        """Wait until `then` is done. Raises what it raises."""
        running = self._running
        if running is None:
            return
        await asyncio.wait({running})
        self._running = None
        if not running.cancelled():
            running.result()

    async def stop(self) -> None:
        """Kill the child, and cancel `then`."""
        if self._running is None:
            return
        self._kill()
        self._running.cancel()
        await self.finished()

    async def _deliver(
        self,
        result: asyncio.Future[bytes | None],
        then: Callable[[bytes | None], Awaitable[None]],
    ) -> None:
        # The thread must read the child's end, or the child stays as a zombie.
        computed = await asyncio.shield(result)
        self._pid = 0
        await then(computed)

    def _kill(self) -> None:
        if self._pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)


def _read(reading: int, pid: int) -> bytes | None:
    with os.fdopen(reading, "rb") as pipe:
        result = pipe.read()
    _, status = os.waitpid(pid, 0)
    return result if status == 0 else None


def _compute_and_exit(compute: Callable[[], bytes], writing: int) -> None:
    """Never return: the child must not run what its parent's stack would do next."""
    code = 1
    try:
        gc.disable()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        os.closerange(0, writing)
        os.closerange(writing + 1, _MAX_DESCRIPTOR)
        rest = memoryview(compute())
        while rest:
            rest = rest[os.write(writing, rest[:_PIECE]) :]
        code = 0
    finally:
        os._exit(code)
