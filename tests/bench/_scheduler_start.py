"""The process that the recovery bench measures: it loads the modules of a scheduler's command,
follows the log, looks at the queue once, prints how long that took, and leaves a snapshot. Without
arguments it only loads.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from typing import TYPE_CHECKING

from shared.runtime import lean

if TYPE_CHECKING:
    from services.scheduler.core import SchedulerCore
    from shared.runtime.projector import Fold


def main(arguments: list[str]) -> None:
    """`arguments` are the log's URL and when the process was started."""
    lean.leave_out_what_is_optional()
    from services.scheduler.handlers import fold_of
    from services.scheduler.settings import SchedulerSettings, chosen
    from shared.runtime.app import loop_factory

    imported_s = time.process_time()
    if arguments:
        lean.loaded()
        lean.replaying()
        fold = fold_of(chosen(SchedulerSettings()).core)
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            figures = runner.run(_follow(fold, arguments[0], float(arguments[1])))
        print(json.dumps({"import_cpu_s": round(imported_s, 2), **figures}))


async def _follow(fold: Fold[SchedulerCore], url: str, begun_s: float) -> dict[str, float]:
    from shared.eventlog.postgres import PostgresEventLog
    from shared.runtime.projector import Projector

    log = await PostgresEventLog.open(url)
    projector = Projector("scheduler", log, fold, snapshot_every=1 << 60)
    opened_s, opened_cpu_s = time.time(), time.process_time()
    following = asyncio.ensure_future(projector.run())
    await projector.wait_live()
    live_s, live_cpu_s = time.time(), time.process_time()
    projector.state.decide(1, 0.0)
    figures = {
        "ready_s": round(time.time() - begun_s, 2),
        "cpu_s": round(time.process_time(), 2),
        "fold_per_s": round(projector.position / (live_s - opened_s)),
        "fold_per_cpu_s": round(projector.position / (live_cpu_s - opened_cpu_s)),
        "rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
    }
    await projector.save()
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    await log.close()
    return figures


if __name__ == "__main__":
    main(sys.argv[1:])
