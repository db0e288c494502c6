"""`python -m tests.mutations [--only TEXT] [--simulation] [--list]`: plant each bug of the table in
a scratch copy and tell who survives. Exit code 1 when one survives, is unclear, or no longer fits
the code."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.mutations.of_kubernetes import KUBERNETES
from tests.mutations.of_simulation import SEEDS, SIMULATED
from tests.mutations.planting import copy_to, try_one
from tests.mutations.table import TESTED


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
    parser.add_argument("--list", action="store_true", help="only say which there are")
    given = parser.parse_args()
    chosen = [
        mutation
        for mutation in (SIMULATED if given.simulation else (*TESTED, *KUBERNETES))
        if given.only in mutation.name
    ]
    if given.list:
        print(
            "\n".join(
                f"{mutation.name} ({mutation.file}): {mutation.catcher}" for mutation in chosen
            )
        )
        return 0
    bad = 0
    with tempfile.TemporaryDirectory(prefix="topolog-mutations-") as name:
        copy_to(Path(name))
        for mutation in chosen:
            seeds = given.seeds or f"{SEEDS.start}..{SEEDS.stop}"
            verdict, words = try_one(mutation, Path(name), seeds if given.simulation else "")
            bad += verdict != "caught"
            print(f"{verdict:9} {mutation.name}: {words}", flush=True)
    print(f"{len(chosen) - bad} of {len(chosen)} caught")
    return 1 if bad or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
