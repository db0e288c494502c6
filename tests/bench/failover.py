"""Measure how long a role is vacant: `python -m tests.bench failover --role binder --kills 50`.

A whole `topolog up` with two processes of every service and the default settings. Each round kills
the process that holds the role (`--signal TERM` asks it to stop), submits a few pods at the same
moment and waits until the role's work is done again: the pods are bound; for `store` a later report
is in the log, for `relay` the events are relayed. The supervisor starts the dead process again; the
next round waits until it is ready. Times are seconds from the signal: `first_s` to the first
binding, `all_s` to the last one and to the role's own work. A last line sums up; `load` is the
machine's run queue: on a busy machine these figures say little.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import signal
import statistics
import time
from typing import Any

from tests.road.failing_over import HOLDERS, WARM, connect, fail_over, settled
from tests.road.harness import Road, folder, running

# A child process that ends sooner counts as failing (services/embedded/child.py).
ROUND_S = 6.0
TIMEOUT_S = 60.0


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench failover", description=__doc__)
    parser.add_argument("--role", choices=sorted(HOLDERS), required=True)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--signal", choices=["KILL", "TERM"], default="KILL")
    asyncio.run(_measure(parser.parse_args(argv)))


async def _measure(options: argparse.Namespace) -> None:
    with folder() as path, running(path, "--nodes", "8", *WARM) as road:
        database = await connect(path)
        await settled(road)
        rounds = []
        for number in range(options.kills):
            rounds.append(await _round(road, database, options, number))
            print(
                json.dumps(
                    {"bench": "failover", "kind": "round", "role": options.role, **rounds[-1]}
                ),
                flush=True,
            )
        await database.close()
    print(json.dumps({"bench": "failover", **_summary(options, rounds)}), flush=True)


async def _round(
    road: Road, database: Any, options: argparse.Namespace, number: int
) -> dict[str, Any]:
    begun_s = time.monotonic()
    failed_over = await fail_over(
        road, database, options.role, number, signal.Signals[f"SIG{options.signal}"], TIMEOUT_S
    )
    await asyncio.sleep(max(ROUND_S - (time.monotonic() - begun_s), 0))
    await settled(road)
    return {
        "killed": failed_over.lease,
        "first_s": failed_over.first_s,
        "all_s": failed_over.all_s,
        "load": round(os.getloadavg()[0], 1),
    }


def _summary(options: argparse.Namespace, rounds: list[dict[str, Any]]) -> dict[str, Any]:
    summary: dict[str, Any] = {"role": options.role, "signal": options.signal, "kills": len(rounds)}
    for key in ("first_s", "all_s"):
        values = sorted(each[key] for each in rounds)
        summary[f"{key[:-2]}_p50_s"] = round(statistics.median(values), 3)
        summary[f"{key[:-2]}_p99_s"] = values[math.ceil(len(values) * 0.99) - 1]
    return summary | {"load": round(statistics.mean(each["load"] for each in rounds), 1)}
