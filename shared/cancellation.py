"""Keep a cancellation from being lost in endless loops."""

from __future__ import annotations

import asyncio


def pass_on_cancellation() -> None:
    """Raise CancelledError if this task was cancelled and a library lost the cancellation. That
    happens if an answer arrives at the same moment (`asyncio.wait_for` before Python 3.12), or if
    the library turns the cancellation into an error of its own. Call it once per turn."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
