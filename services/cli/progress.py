"""A progress bar on a terminal's stderr; nothing in a pipe."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from services.replay.reading import SHOW_PROGRESS

SHOWN_AFTER_S = 1.0


@contextmanager
def progress_bar(
    action: str, total: float, enabled: bool = True
) -> Iterator[Callable[[float], None]]:
    """Yield a function that takes how much of `total` is done."""
    if not (enabled and sys.stderr.isatty()):
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(action, total=total)
        yield lambda done: bar.update(task, completed=done)


class ReadingBar:
    """Shows how far a question has read the log, after a second of reading without output."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._advance: Callable[[float], None] | None = None
        self._begun_s = time.monotonic()
        self._read = (0, 0)

    def __call__(self, first: int, position: int, end: int) -> None:
        if time.monotonic() - self._begun_s < SHOWN_AFTER_S:
            return
        if self._advance is None or self._read != (first, end):
            self._stack.close()
            action = f"reading positions {first + 1} to {end}"
            self._advance = self._stack.enter_context(progress_bar(action, end - first))
            self._read = first, end
        self._advance(position - first)

    def hide(self) -> None:
        """Remove the bar, because something else is printed."""
        self._stack.close()
        self._advance, self._begun_s = None, time.monotonic()


@contextmanager
def reading_bar() -> Iterator[ReadingBar]:
    """Show the progress of every long read until the end."""
    bar = ReadingBar()
    token = SHOW_PROGRESS.set(bar)
    try:
        yield bar
    finally:
        SHOW_PROGRESS.reset(token)
        bar.hide()
