"""A wish to stop must not be lost: libraries built on `asyncio.wait_for` lose it before Python
3.12, when an answer comes at the same moment. Endless loops of ours ask here once a turn."""

from __future__ import annotations

import asyncio


def pass_on_cancellation() -> None:
    """Raise CancelledError when this task was asked to stop and goes on all the same."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
