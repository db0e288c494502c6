"""Keep services small and quick to start: each megabyte of an exporter counts once per node, and a
service that replaces a crashed one may have to start first.

1. rich, psutil, greenlet and uvloop are optional for the libraries that import them, and cost 4 to
   7 MB and a tenth of the start: colours in tracebacks, the process in traces, thread-locals, and a
   loop that pays off with many nodes.
2. numpy's algebra threads, one per core, spin for tens of ms at start; no matrix here is large
   enough for two.
3. Garbage collection while code is loaded finds almost nothing and costs another tenth.
4. A full collection looks at every container object, and nothing else runs meanwhile: 0.8 s with
   320,000 pods. So the survivors of a long one are never looked at again. They are nearly all
   state, which is made of values without cycles.

Call this before any other import. Must not import anything slow.
"""

import gc
import os
import sys
import time
from collections.abc import Mapping

FEW_NODES = 4
# The number of new objects between two collections while code is loaded: more than loading creates.
LOADING = 1_000_000
# Afterwards. State is made of values without cycles, so collections find almost nothing; with
# Python's default of 700 they took 5 % of a scheduler's CPU time.
COLLECT_AFTER = 10_000
# Collections of a generation until the next older one is collected, too. With 10 as in Python, a
# million new objects are collected at once.
OLDER_AFTER = 1
# A full collection that takes longer is the last one for its objects.
LONG_S = 0.01
# In commands that read a log or play a workload, and while a service replays: state grows, and none
# of it is garbage. At 700 collections took a tenth of playing, at 10,000 a tenth of a replay.
SELDOM = 100_000


def leave_out_what_is_optional() -> None:
    """Disable optional libraries; structlog then prints tracebacks without colours."""
    gc.set_threshold(LOADING)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    for name in ("rich", "psutil", "greenlet"):
        sys.modules.setdefault(name, None)  # type: ignore[arg-type]


def loaded() -> None:
    """Exclude loaded code from collections, and keep each later one short."""
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER, OLDER_AFTER, OLDER_AFTER)
    gc.callbacks.append(LongCollections().note)


class LongCollections:
    """Excludes the survivors of long full collections from later ones."""

    def __init__(self) -> None:
        self._began_s = 0.0

    def note(self, phase: str, info: Mapping[str, int]) -> None:
        """Called by the collector before ("start") and after ("stop") each collection."""
        if phase == "start":
            self._began_s = time.thread_time()
        elif info["generation"] == 2 and time.thread_time() - self._began_s > LONG_S:
            gc.freeze()


def replaying() -> None:
    """Collect seldom until `replayed`, because nearly all new objects are state."""
    gc.set_threshold(SELDOM)


def replayed() -> None:
    """Exclude the folded state from collections; a full one takes about 40 ms at 5,000 nodes."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER)


def collect_seldom() -> None:
    """Collect seldom, in processes that compute something and end."""
    gc.freeze()
    gc.set_threshold(SELDOM)


def leave_out_uvloop(nodes: int) -> None:
    """Use asyncio's loop, which is fast enough for few nodes."""
    if nodes <= FEW_NODES:
        sys.modules.setdefault("uvloop", None)  # type: ignore[arg-type]
