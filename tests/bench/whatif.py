"""A history decided again: `python -m tests.bench whatif --pods 100000 --nodes 100`.

The production core plays the dense workload on simulated kubelets until about so many pods came,
and exports its log; then `topolog replay whatif` runs on that file as a user runs it, first with no
change, then with one (`--set`). A JSON line for the history and one for each question: wall
seconds, CPU seconds of the command and its children (`max_rss_mb` of the largest of them),
`decided_per_s` by the wall clock (recorded decisions without a change, pods of one side with one),
and the `differs` of its own last line. Two sides play at once, so that two free cores count.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from services.upkeep.exporting import export
from tests.whatif.histories import as_here, dense

# Pods per second of the dense workload at load 0.9.
PODS_A_NODE_AND_S = 0.07


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench whatif", description=__doc__)
    parser.add_argument("--pods", type=int, default=5000)
    parser.add_argument("--nodes", type=int, default=60)
    parser.add_argument("--set", default="strategy=LeastAllocated", dest="change")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="topolog-bench-") as folder:
        history = Path(folder) / "history.topolog.gz"
        _print(
            {"nodes": options.nodes, **asyncio.run(_record(history, options.pods, options.nodes))}
        )
        for change in ([], ["--set", options.change]):
            _print({"change": " ".join(change[1:]), **_ask(history, change)})


async def _record(history: Path, pods: int, nodes: int) -> dict[str, object]:
    began_s = time.monotonic()
    log = await dense(round(pods / nodes / PODS_A_NODE_AND_S), as_here(), nodes=nodes)
    head = await log.head()
    await export(log, history, 1, head)
    return {"facts": head, "made_in_s": round(time.monotonic() - began_s, 1)}


def _ask(history: Path, change: list[str]) -> dict[str, object]:
    command = [
        str(Path(sys.executable).with_name("topolog")),
        "replay",
        "whatif",
        "--history",
        str(history),
        "--json",
        *change,
    ]
    usage_before, began_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    wall_s, usage_after = time.monotonic() - began_s, resource.getrusage(resource.RUSAGE_CHILDREN)
    lines = [json.loads(line) for line in said]
    decided = next((line["pods"] for line in lines if "pods" in line), lines[-1]["decisions"])
    cpu_s = (
        usage_after.ru_utime + usage_after.ru_stime - usage_before.ru_utime - usage_before.ru_stime
    )
    return {
        "decided": decided,
        "wall_s": round(wall_s, 1),
        "cpu_s": round(cpu_s, 1),
        "decided_per_s": round(decided / wall_s),
        "max_rss_mb": usage_after.ru_maxrss // 1024,
        "differs": lines[-1]["differs"],
    }


def _print(line: dict[str, object]) -> None:
    print(json.dumps({"bench": "whatif", **line}), flush=True)
