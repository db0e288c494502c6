"""Pods reserved durably a second by one scheduler: `python -m tests.bench durable [--nodes 5000
--zones 8]`.

The service as a process of its own, on an embedded Postgres with fsync on, with all pods there at
once: the bench of sharing with one scheduler. A JSON line; `reserved_per_s` by the times in the
log, first to last.
"""

from __future__ import annotations

import argparse
import asyncio
import json

from tests.bench.sharing import measure


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench durable", description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--zones", type=int, default=8)
    parser.add_argument("--pods", type=int, default=20_000)
    options = parser.parse_args(argv)
    print(json.dumps({**asyncio.run(measure(1, options)), "bench": "durable"}), flush=True)
