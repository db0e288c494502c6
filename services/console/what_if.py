"""Answers questions of the What-if view: runs `topolog replay whatif` in its own process, one at a
time.

Playing a history needs memory and CPU for a while. A process can be ended, and does not delay the
console.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from typing import Any

import msgspec

from shared.domain.secret_url import Address

MOST_OUTPUT_BYTES = 4 << 20
MOST_PROBLEM_LETTERS = 2000


class WhatIfError(Exception):
    """The question was not answered; the text says why."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(problem)
        self.remedy = remedy


class WhatIf:
    """Runs what-ifs for at most `limit_s` seconds each; 0 disables them."""

    def __init__(self, database: Address, limit_s: float) -> None:
        self._database, self._limit_s = database, limit_s
        self._lock = asyncio.Lock()

    async def ask(self, changes: list[str], first: str, last: str) -> dict[str, Any]:
        """Return sides, first difference and notes. Raises WhatIfError."""
        if not self._limit_s:
            raise WhatIfError("what-if is off here", "set TOPOLOG_WHAT_IF_LIMIT_S above 0")
        if self._lock.locked():
            raise WhatIfError("another what-if is running", "ask again when it has ended")
        async with self._lock:
            lines = await self._output(changes, first, last)
        *sides, difference, totals = lines
        return {"sides": sides, **difference, **totals}

    def _url(self) -> str:
        return self._database if isinstance(self._database, str) else self._database()

    async def _output(self, changes: list[str], first: str, last: str) -> list[dict[str, Any]]:
        words = [f"--set={change}" for change in changes]
        words += [f"--from={first}"] if first else []
        words += [f"--to={last}"] if last else []
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "topolog",
            "replay",
            "whatif",
            "--json",
            "--jobs=1",
            *words,
            env={**os.environ, "TOPOLOG_DATABASE_URL": self._url()},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=MOST_OUTPUT_BYTES,
        )
        try:
            async with asyncio.timeout(self._limit_s):
                output, problem = await process.communicate()
        except TimeoutError:
            raise WhatIfError(
                f"no answer within {self._limit_s:g} s",
                "ask about a shorter part of the log, or raise TOPOLOG_WHAT_IF_LIMIT_S",
            ) from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        if process.returncode:
            text = problem.decode(errors="replace").strip()[-MOST_PROBLEM_LETTERS:]
            raise WhatIfError(text, "topolog replay whatif --help lists what can be changed")
        return [msgspec.json.decode(line) for line in output.splitlines()]
