"""Raise a LeaseLost from a task group as itself, not inside an exception group."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from shared.runtime.leadership import LeaseLost


@contextmanager
def lease_losses() -> Iterator[None]:
    """Wrap a TaskGroup: raise a LeaseLost that is anywhere in its errors, else the group."""
    try:
        yield
    except BaseExceptionGroup as errors:
        lost = errors.subgroup(LeaseLost)
        if lost is not None:
            raise LeaseLost(str(lost.exceptions[0])) from errors
        raise
