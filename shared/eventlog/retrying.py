"""Repeat a call to the log while its database is away.

The first try nearly always succeeds, so the retry machinery is loaded and runs only after it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

import structlog

from shared.telemetry import logs, names
from shared.telemetry.reasons import plain

if TYPE_CHECKING:
    from stamina.instrumentation import RetryDetails

T = TypeVar("T")


async def retried(
    ask: Callable[[], Awaitable[T]], on: tuple[type[Exception], ...], for_s: float
) -> T:
    """Return the answer of a repeatable call. After the errors `on` it is repeated for `for_s`;
    raises the last of them.
    """
    with suppress(*on):
        return await ask()
    import stamina
    from stamina.instrumentation import set_on_retry_hooks

    # Commands configure no log lines: they print the last error.
    set_on_retry_hooks([_log] if structlog.is_configured() else [])
    async for attempt in stamina.retry_context(
        on=on, attempts=None, timeout=for_s, wait_initial=0.05, wait_max=2.0, wait_jitter=0.1
    ):
        with attempt:
            return await ask()
    raise AssertionError("a retry context ends by return or raise")


def _log(details: RetryDetails) -> None:
    """Log a retry with its problem and pause, and without the arguments of the call."""
    error = details.caused_by
    problem = plain(error) if isinstance(error, OSError) else str(error) or plain(error)
    logs.get("log").warning(
        names.RETRYING,
        problem=problem,
        attempt=details.retry_num,
        next_in_s=round(details.wait_for, 3),
    )
