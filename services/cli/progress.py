"""A bar for what takes its time: on a terminal's stderr, nothing elsewhere. Must not know what is
being done.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(what: str, total: float, wanted: bool = True) -> Iterator[Callable[[float], None]]:
    """Yields what hears how much is done of `total`."""
    if not (wanted and sys.stderr.isatty()):
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.update(task, completed=done)
