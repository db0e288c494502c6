"""Task groups whose tasks may lose their lease: one LeaseLost comes out as itself, not inside a
group.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from shared.runtime.leadership import LeaseLost


@contextmanager
def lease_losses() -> Iterator[None]:
    """Around a TaskGroup: raise the LeaseLost that is anywhere in the group of errors, else the
    group.
    """
    try:
        yield
    except BaseExceptionGroup as errors:
        lost = errors.subgroup(LeaseLost)
        if lost is not None:
            raise LeaseLost(str(lost.exceptions[0])) from errors
        raise
