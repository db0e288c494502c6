"""`python -m tests.simulation --seeds A..B --steps N [--trace] [--keep-going]`: run seeds by hand."""

from __future__ import annotations

import argparse
import sys
from collections import Counter

from tests.simulation.runner import COLUMNS, STEPS, run_seed
from tests.simulation.world import Broken


def main() -> int:
    """Exit code 1 when a seed fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("--seeds", default="0..20", help="one seed, or A..B (B excluded)")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--trace", action="store_true", help="print the trace of seeds that pass, too")
    parser.add_argument("--keep-going", action="store_true", help="one line a failing seed instead of the story of the first")
    options = parser.parse_args()
    first, _, last = options.seeds.partition("..")
    marks: Counter[str] = Counter()
    failed = 0
    for seed in range(int(first), int(last) if last else int(first) + 1):
        try:
            world = run_seed(seed, options.steps)
        except Broken as broken:
            failed += 1
            print(str(broken).splitlines()[0] if options.keep_going else broken, flush=True)
            if not options.keep_going:
                break
            continue
        marks.update(world.marks)
        if options.trace:
            print("\n".join([COLUMNS, *world.trace]))
    for name, count in sorted(marks.items()):
        print(f"{count:6d} {name}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
