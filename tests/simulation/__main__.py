"""`python -m tests.simulation [--seeds A..B

--minutes M]`: run seeds by hand, or new ones for five minutes by default. A failing seed prints one
line per step, from the first. With `--keep` (`make sim` sets it) every test run tries it from then
on.
"""

from __future__ import annotations

import argparse
import itertools
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator

from services.simulator.cluster import KUBELET, OWNERS
from tests.simulation.profile import DRAWN, NEWEST, OFTEN, OWNING, Fixed, known_faults
from tests.simulation.runner import COLUMNS, STEPS, keep, run_seed
from tests.simulation.world import Broken

MINUTES = 5.0


def main() -> int:
    """Play seeds. Return 1 if a seed fails."""
    options = _options()
    kubelets = options.policy, options.scope, options.zones
    fixed = Fixed(*kubelets, tuple(options.often), options.owner, options.cards)
    marks: Counter[str] = Counter()
    ran = failed = 0
    for seed in _seeds(options):
        ran += 1
        try:
            world = run_seed(seed, options.steps, fixed)
        except Broken as broken:
            failed += 1
            first = str(broken).splitlines()[0]
            print(first if options.keep_going or options.until else broken, flush=True)
            print(_kept(seed, first, options, fixed), file=sys.stderr, flush=True)
            if said_by(options.until, first) if options.until else not options.keep_going:
                break
            continue
        marks.update(world.marks)
        if options.trace:
            print("\n".join([COLUMNS, *world.trace]))
    for name, count in sorted(marks.items()):
        print(f"{count:6d} {name}")
    print(f"{ran} seeds, {failed} failed", file=sys.stderr)
    return 1 if failed else 0


def _kept(seed: int, first: str, options: argparse.Namespace, fixed: Fixed) -> str:
    """Return where a failed seed was kept, or why not. Test runs try only seeds that are drawn with
    the default options and the usual number of steps.
    """
    if fixed != DRAWN or options.steps != STEPS:
        return (
            f"not kept, as it needs the options of this run: name seed {seed} in WITH_OPTIONS "
            "of test_kept_seeds.py"
        )
    if not options.keep:
        return f"to keep it: python -m tests.simulation --seeds {seed} --keep"
    joined = "is added" if keep(seed, first) else "is there already"
    return (
        f"seed {seed} {joined}: tests/simulation/seeds.txt, which every test run tries; "
        "commit it with what mends it"
    )


def said_by(checkers: str, story: str) -> bool:
    """Return whether a failing seed's first line names one of these checkers (`S4 L2`)."""
    return re.search(rf"[:;] (?:{checkers})(?: at \d+)?:", story) is not None


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument(
        "--seeds",
        default="",
        help=f"A, A..B (B excluded), or several of them: A..B,C; none: new ones, from {NEWEST} on",
    )
    parser.add_argument(
        "--minutes",
        type=float,
        default=0.0,
        help=f"new seeds for so long ({MINUTES:g}), or the given ones at most so long",
    )
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument(
        "--policy", default="", help="the Topology Manager policy of every kubelet (default: drawn)"
    )
    parser.add_argument("--scope", default="", help="container or pod (default: drawn)")
    parser.add_argument("--zones", type=int, default=0, help="zones of every node (default: drawn)")
    parser.add_argument(
        "--owner", default=KUBELET, choices=OWNERS, help="who chooses zones of every other node"
    )
    parser.add_argument(
        "--cards", action="store_true", help="with --owner topolog: their GPUs, too"
    )
    often = f"a fault that is {OFTEN} times as frequent as by itself; may be given again"
    parser.add_argument(
        "--often", action="append", default=[], choices=sorted(known_faults(OWNING)), help=often
    )
    parser.add_argument(
        "--trace", action="store_true", help="print the trace of seeds that pass, too"
    )
    parser.add_argument(
        "--keep-going",
        action="store_true",
        help="one line a failing seed instead of the story of the first",
    )
    parser.add_argument(
        "--until",
        default="",
        metavar="CHECKERS",
        help="go on until one of these (S4|L2) finds a seed broken",
    )
    parser.add_argument(
        "--keep",
        action="store_true",
        help="add failing seeds to seeds.txt, which every test run tries",
    )
    return parser.parse_args()


def _seeds(options: argparse.Namespace) -> Iterator[int]:
    """Yield the seeds. New ones begin at unused numbers and play worlds with all themes."""
    minutes = options.minutes or (0.0 if options.seeds else MINUTES)
    until_s = time.monotonic() + minutes * 60
    ranges = [_range(text) for text in options.seeds.split(",") if text]
    if not options.seeds:
        begin = NEWEST + int(time.time()) % 10**9
        ranges = [range(begin, begin + 10**6)]
        print(f"seeds from {begin} on, for {minutes:g} minutes", file=sys.stderr)
    for seed in itertools.chain(*ranges):
        if minutes and time.monotonic() > until_s:
            return
        yield seed


def _range(text: str) -> range:
    first, _, last = text.partition("..")
    return range(int(first), int(last) if last else int(first) + 1)


if __name__ == "__main__":
    sys.exit(main())
