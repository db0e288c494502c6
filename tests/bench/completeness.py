"""Compare the scheduler's verdicts with the kubelet model's, by policy and scope, over random
scenes with all their states.

Reports are the production exporter's. Prints a JSON line for each rule: `passed`, `refused`,
`refused_needlessly` (every consistent state admits the pod and no pending admission could lose by
it), `unsound` (passed, though some state rejects: must be 0), `undecided` (more states than are
enumerated), `over_budget` (refused because the search met its budget; also counted as needless if
it is), `bounded` (scenes with an undecided part; `bounded_by` names it, `bounded_share` is their
share, at most a tenth; `refused_within_bounds` are refusals there that the one true state does not
share), `cases` (special properties of scenes: `--case NAME` alone, `--plain` none; by default a
share has each).

`report` is `bus` for Topolog's exporter and `nrt` for nodes that NodeResourceTopology objects
describe, all of whose pods a fingerprint has confirmed, in plain scenes.

`--proven`: all pods on the node are confirmed; `refused_needlessly` and `unsound` must then be 0.
`--by-search` finds bounds that promise too much, in ten times as many scenes.
"""

from __future__ import annotations

import argparse
import json
from math import sqrt

from tests.scheduler.kubelet_worlds import Outcome, measured
from tests.scheduler.test_cycle_soundness import RULES
from tests.scheduler.varied_scenes import SHARES, ZONES, maker


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench completeness", description=__doc__)
    parser.add_argument("--scenes", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--proven", action="store_true", help="no pods on their way")
    parser.add_argument("--unsettled", type=int, default=3, help="pods on their way, at most")
    parser.add_argument(
        "--running",
        type=float,
        default=0.0,
        help="share of them that is heard to run, in zones nobody knows",
    )
    parser.add_argument(
        "--between", type=float, default=0.0, help="share of devices that lie in two zones"
    )
    parser.add_argument(
        "--zones",
        type=int,
        default=None,
        help="zones of each node (default: 1 to 8, a share of scenes each)",
    )
    parser.add_argument(
        "--no-checkpoints",
        action="store_true",
        help="the exporter may not read the kubelet's state folder",
    )
    parser.add_argument(
        "--by-search",
        action="store_true",
        help="held against a search without bounds, which is faster",
    )
    parser.add_argument(
        "--case",
        action="append",
        choices=sorted(SHARES),
        help="every scene has it, and no other but those named",
    )
    parser.add_argument("--plain", action="store_true", help="no special cases")
    parser.add_argument(
        "--report", choices=["bus", "nrt"], action="append", help="only rows of this source"
    )
    parser.add_argument("--policy", action="append", help="only rows of this policy")
    options = parser.parse_args(argv)
    for report in options.report or ["bus", "nrt"]:
        for policy, scope in RULES:
            if not options.policy or policy in options.policy:
                print(json.dumps(measure(policy, scope, options, report)), flush=True)


def measure(
    policy: str, scope: str, options: argparse.Namespace, report: str = "bus"
) -> dict[str, object]:
    """Return one result line."""
    is_object = report == "nrt"
    unsettled = 0 if options.proven or is_object else options.unsettled
    outcome = Outcome()
    checked = {"checkpoints": not options.no_checkpoints, "by_search": options.by_search}
    settings = {"running": options.running, "between": options.between}
    plain = options.plain or options.no_checkpoints or options.by_search or is_object
    shares = dict.fromkeys(options.case, 1.0) if options.case else SHARES
    for zones, seeds in _by_zones(options).items():
        made = None if plain else maker(policy, scope, zones, unsettled, shares, **settings)
        measured(
            seeds,
            policy,
            scope,
            unsettled,
            into=outcome,
            zones=zones,
            made=made,
            as_object=is_object,
            **checked,
            **settings,
        )
    needless, should = (
        len(outcome.refused_needlessly),
        outcome.passed - len(outcome.unsound) + len(outcome.refused_needlessly),
    )
    return {
        "report": report,
        "policy": policy,
        "scope": scope,
        "scenes": options.scenes,
        "proven": options.proven or is_object,
        "passed": outcome.passed,
        "refused": outcome.refused,
        "refused_needlessly": needless,
        "needless_upper_95": _upper(needless, should),
        "unsound": len(outcome.unsound),
        "unsound_seeds": outcome.unsound[:5],
        "undecided": outcome.undecided,
        "over_budget": outcome.over_budget,
        "needless_seeds": outcome.refused_needlessly[:5],
        "bounded": outcome.bounded,
        "bounded_share": round(outcome.bounded / max(1, outcome.passed + outcome.refused), 4),
        "bounded_by": outcome.bounded_by,
        "refused_within_bounds": len(outcome.refused_within_bounds),
        "within_bounds_seeds": outcome.refused_within_bounds[:5],
        "unmatched": outcome.unmatched,
        "cases": outcome.cases,
    }


def _by_zones(options: argparse.Namespace) -> dict[int, range]:
    """Return the seeds by number of zones."""
    seeds = range(options.seed, options.seed + options.scenes)
    if options.zones:
        return {options.zones: seeds}
    return {zones: seeds[at :: len(ZONES)] for at, zones in enumerate(ZONES)}


def _upper(count: int, of: int) -> float:
    """Return the upper end of Wilson's 95 % interval of a share."""
    if not of:
        return 1.0
    z, share = 1.96, count / of
    middle, spread = (
        share + z * z / (2 * of),
        z * sqrt(share * (1 - share) / of + z * z / (4 * of * of)),
    )
    return round((middle + spread) / (1 + z * z / of), 4)
