"""`python -m tests.mutations [--only TEXT] [--sample N] [--simulation] [--list]`: plant each
bug of the table in a scratch copy and print which ones no test catches. Exit code 1 if a bug
survives, is unclear, or no longer fits the code. With `--sample` only N bugs are planted, for
at most `--seconds` in all: which ones follows from the commit, so that a run can be repeated.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.mutations.of_agent import AGENT
from tests.mutations.of_kubernetes import KUBERNETES
from tests.mutations.of_ledger import LEDGER
from tests.mutations.of_owned import OWNED
from tests.mutations.of_questions import QUESTIONS
from tests.mutations.of_simulation import SEEDS, SIMULATED
from tests.mutations.planting import ROOT, TIMEOUT_S, copy_to, try_one
from tests.mutations.table import TESTED, Mutation

BY_TESTS = (*TESTED, *AGENT, *LEDGER, *OWNED, *QUESTIONS, *KUBERNETES)


def main() -> int:
    """Run the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=__doc__)
    parser.add_argument("--only", default="", help="mutations whose name contains this")
    parser.add_argument(
        "--simulation",
        action="store_true",
        help="those that the simulation must find, by the checker meant for it",
    )
    parser.add_argument(
        "--seeds", default="", help="A..B,C instead of the 200 seeds of the simulation"
    )
    parser.add_argument("--sample", type=int, default=0, help="only so many, chosen by the commit")
    parser.add_argument(
        "--seconds", type=float, default=80.0, help="when a sample ends (default: %(default)s)"
    )
    parser.add_argument("--commit", default="", help="instead of HEAD, for a sample")
    parser.add_argument("--list", action="store_true", help="only say which there are")
    given = parser.parse_args()
    chosen = [
        mutation
        for mutation in (SIMULATED if given.simulation else BY_TESTS)
        if given.only in mutation.name
    ]
    if given.sample:
        chosen = sample(chosen, given.commit or _head(), given.sample)
    if given.list:
        print(
            "\n".join(
                f"{mutation.name} ({mutation.file}): {mutation.catcher}" for mutation in chosen
            )
        )
        return 0
    bad = tried = 0
    ends_s = time.monotonic() + (given.seconds if given.sample else TIMEOUT_S * len(chosen))
    with tempfile.TemporaryDirectory(prefix="topolog-mutations-") as name:
        copy_to(Path(name))
        for mutation in chosen:
            seeds = given.seeds or f"{SEEDS.start}..{SEEDS.stop}"
            timeout_s = min(TIMEOUT_S, ends_s - time.monotonic())
            if timeout_s <= 0:
                break
            verdict, words = try_one(
                mutation, Path(name), seeds if given.simulation else "", timeout_s
            )
            if verdict == "timed out" and given.sample:
                break
            tried += 1
            bad += verdict not in ("caught", "timed out")
            print(f"{verdict:9} {mutation.name}: {words}", flush=True)
    print(f"{tried - bad} of {tried} caught" + _rest(len(chosen) - tried))
    return 1 if bad or not tried else 0


def sample(mutations: Sequence[Mutation], commit: str, size: int) -> list[Mutation]:
    """Return as many mutations as asked, in an order that follows from the commit."""

    def rank(mutation: Mutation) -> bytes:
        return hashlib.sha256(f"{commit}/{mutation.name}".encode()).digest()

    return sorted(mutations, key=rank)[:size]


def _rest(count: int) -> str:
    return f"; the time was up for {count} more" if count else ""


def _head() -> str:
    command = ["git", "rev-parse", "HEAD"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout


if __name__ == "__main__":
    sys.exit(main())
