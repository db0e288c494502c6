"""Keeps a service small and quick to start: each megabyte of an exporter counts once a node, and a
service that takes over from one that crashed may have to start first.

These libraries are only ever optional to those who import them, and cost 4 to 7 MB and a tenth of
the start: rich (colours in structlog's tracebacks), psutil (OpenTelemetry describes the process),
greenlet (structlog's thread-locals), uvloop (pays off with many nodes). So are numpy's threads for
algebra, one a core: each turns idly for tens of ms when it begins, and no matrix here is large
enough for two. So are looks for cycles while code is loaded, which find next to none: another
tenth. Must be called before anything else is imported; must not import what takes time.
"""

import gc
import os
import sys

FEW_NODES = 4
LOADING = 1_000_000
"""New objects between two looks for cycles while code is loaded: more than that makes."""
COLLECT_AFTER = 10_000
"""And from then on. State is made of values without cycles, so that next to nothing is found; after each 700, as Python has it,
the looks took 5 % of a scheduler's CPU time."""
SELDOM = 100_000
"""The same in a command that reads a log or plays a workload and ends, and while a service replays: state grows, and none of it
is garbage. After each 700 the looks took a tenth of playing, after each 10,000 a tenth of a replay."""


def leave_out_what_is_optional() -> None:
    """structlog then prints tracebacks without colours, and traces say nothing of the process'
    owner.
    """
    gc.set_threshold(LOADING)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    for name in ("rich", "psutil", "greenlet"):
        sys.modules.setdefault(name, None)  # type: ignore[arg-type]


def loaded() -> None:
    """The code is there, and stays: no look for cycles needs to walk through it."""
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER)


def replaying() -> None:
    """Until `replayed`, nearly all that is made is state."""
    gc.set_threshold(SELDOM)


def replayed() -> None:
    """What was folded stays: full looks (some 40 ms at 5,000 nodes) need not walk through it again
    and again.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER)


def collect_seldom() -> None:
    """In a process that computes something and ends."""
    gc.freeze()
    gc.set_threshold(SELDOM)


def leave_out_uvloop(nodes: int) -> None:
    """With few nodes asyncio's own loop is fast enough."""
    if nodes <= FEW_NODES:
        sys.modules.setdefault("uvloop", None)  # type: ignore[arg-type]
