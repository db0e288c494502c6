"""`python -m tests.simulation [--seeds A..B | --minutes M]`: run seeds by hand. A seed that fails prints one line a step."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator

from tests.simulation.profile import LATER, Fixed
from tests.simulation.runner import COLUMNS, STEPS, keep, run_seed
from tests.simulation.world import Broken


def main() -> int:
    """Exit code 1 when a seed fails."""
    options = _options()
    fixed = Fixed(options.policy, options.scope, options.zones)
    marks: Counter[str] = Counter()
    ran = failed = 0
    for seed in _seeds(options):
        ran += 1
        try:
            world = run_seed(seed, options.steps, fixed)
        except Broken as broken:
            failed += 1
            first = str(broken).splitlines()[0]
            print(first if options.keep_going else broken, flush=True)
            if options.keep:
                keep(seed, first)
            if not options.keep_going:
                break
            continue
        marks.update(world.marks)
        if options.trace:
            print("\n".join([COLUMNS, *world.trace]))
    for name, count in sorted(marks.items()):
        print(f"{count:6d} {name}")
    print(f"{ran} seeds, {failed} failed", file=sys.stderr)
    return 1 if failed else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("--seeds", default="", help="one seed, or A..B (B excluded); 0..20 where no time is given")
    parser.add_argument("--minutes", type=float, default=0.0, help="new seeds for so long, or the given ones at most so long")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--policy", default="", help="the Topology Manager policy of every kubelet (default: drawn)")
    parser.add_argument("--scope", default="", help="container or pod (default: drawn)")
    parser.add_argument("--zones", type=int, default=0, help="zones of every node (default: drawn)")
    parser.add_argument("--trace", action="store_true", help="print the trace of seeds that pass, too")
    parser.add_argument("--keep-going", action="store_true", help="one line a failing seed instead of the story of the first")
    parser.add_argument("--keep", action="store_true", help="add failing seeds to seeds.txt, which every test run tries")
    return parser.parse_args()


def _seeds(options: argparse.Namespace) -> Iterator[int]:
    """New seeds begin where nobody was before: at the second of the day, in worlds with everything in them."""
    until_s = time.monotonic() + options.minutes * 60
    first, _, last = (options.seeds or "0..20").partition("..")
    begin, end = int(first), int(last) if last else int(first) + 1
    if options.minutes and not options.seeds:
        begin = LATER + int(time.time()) % 10**9
        end = begin + 10**6
        print(f"seeds from {begin} on", file=sys.stderr)
    for seed in range(begin, end):
        if options.minutes and time.monotonic() > until_s:
            return
        yield seed


if __name__ == "__main__":
    sys.exit(main())
