"""A follower in a process of its own that reads as services do: `python -m tests.bench._follower
URL POSITION LAST`.

Prints `ready` once it has caught up from the position, and ends with the event of the commit LAST:
then it prints how long after its writer's time each event was handled. Its clock must be the
writer's. Must not know the writers or their number.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Sequence

import structlog

from shared.eventlog.postgres import PostgresEventLog
from shared.events.envelope import Envelope
from shared.runtime.consumer import Consumer


async def follow(url: str, position: int, last: str) -> list[int]:
    """Return the microseconds from the writer's time of each event to its handling."""
    log = await PostgresEventLog.open(url)
    lags_us: list[int] = []
    ended = asyncio.Event()

    async def handle(page: Sequence[Envelope]) -> None:
        now_us = time.time_ns() // 1000
        lags_us.extend(now_us - envelope.time_us for envelope in page)
        if any(envelope.commit_id == last for envelope in page):
            ended.set()

    consumer = Consumer("follower", log, handle, start=position)
    running = asyncio.create_task(consumer.run())
    await consumer.live.wait()
    print("ready", flush=True)
    await ended.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await log.close()
    return lags_us


def main(url: str, position: str, last: str) -> None:
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    lags_us = sorted(asyncio.run(follow(url, int(position), last)))
    p50_us, p99_us = lags_us[len(lags_us) // 2], lags_us[int(len(lags_us) * 0.99)]
    print(
        json.dumps({"facts": len(lags_us), "lag_p50_ms": p50_us / 1e3, "lag_p99_ms": p99_us / 1e3})
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
