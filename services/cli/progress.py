"""A progress bar on a terminal's stderr; nothing in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


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
