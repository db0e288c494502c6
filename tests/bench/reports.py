"""Bench of the topology-store's judgement: CPU of each report of many nodes, on a log in memory.

Prints a JSON line for first reports, for reports without news, and for changed ones.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import time

from services.topology_store.handlers import Reports
from shared.bus.memory import MemoryBus
from shared.eventlog.memory import MemoryEventLog
from tests.runtime.helpers import lent
from tests.topology_store.words import Hands, message, report

BATCH = 500


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench reports", description=__doc__)
    parser.add_argument("--nodes", type=int, default=20_000)
    asyncio.run(_judged(parser.parse_args(argv).nodes))


async def _judged(nodes: int) -> None:
    clock = Hands()
    store = Reports(MemoryEventLog(), lent("topology-store/0"), MemoryBus(), clock)
    for number, (kind, free) in enumerate((("first", 8), ("unchanged", 8), ("changed", 7)), 1):
        messages = [message(report(at=number, free=free, node=f"n{node}")) for node in range(nodes)]
        clock.now_s += 10
        begun_s = time.process_time()
        for first in range(0, nodes, BATCH):
            await store.take(messages[first : first + BATCH])
        cpu_us = (time.process_time() - begun_s) / nodes * 1e6
        mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        figures = {"nodes": nodes, "reports": kind, "cpu_us": round(cpu_us, 1), "mb": mb}
        print(json.dumps({"bench": "reports"} | figures), flush=True)
