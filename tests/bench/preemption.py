"""Compare preemption's victims with brute force over the kubelet model: full nodes whose pods are
all confirmed, with checkpoints.

Prints a JSON line for each rule: `exact` (as few and as low as the cheapest sufficient set),
`nobody` (rightly none), `for_nothing` (the kubelet admits already; must be 0), `refused_after`
(must be 0), `costlier` and `missed` (a sufficient set was overlooked).
"""

from __future__ import annotations

import argparse
import json
from collections import Counter

from tests.scheduler.kubelet_worlds import NODE
from tests.scheduler.preemption_scenes import Full, admits, cheapest, cost_of, full_node, world_of
from tests.scheduler.test_cycle_soundness import RULES

KINDS = ("exact", "nobody", "costlier", "missed", "for_nothing", "refused_after")


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench preemption", description=__doc__)
    parser.add_argument("--scenes", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--between", type=float, default=0.0, help="share of devices that lie in two zones"
    )
    options = parser.parse_args(argv)
    for policy, scope in RULES:
        for inits in (False, True):
            measured = measure(
                policy,
                scope,
                inits,
                range(options.seed, options.seed + options.scenes),
                options.between,
            )
            row = {
                "policy": policy,
                "scope": scope,
                "init_containers": inits,
                "scenes": options.scenes,
            }
            print(json.dumps(row | {kind: measured[kind] for kind in KINDS}), flush=True)


def measure(
    policy: str, scope: str, inits: bool, seeds: range, between: float = 0.0
) -> Counter[str]:
    """Return how often the search had each result."""
    return Counter(judged(full_node(seed, policy, scope, inits, between=between)) for seed in seeds)


def judged(full: Full) -> str:
    """Return one of KINDS."""
    world, best = world_of(full), cheapest(full)
    nomination = world.cluster.nominate(full.pod, world.ledger.pods, (), None)
    if nomination is None:
        return "nobody" if best in (None, (0, 0)) else "missed"
    assert nomination.node == NODE
    if best == (0, 0):
        return "for_nothing"
    if not admits(full.state, full.pod, nomination.victims):
        return "refused_after"
    priority = {uid: active.pod.priority for uid, active in full.state.pods.items()}
    return "exact" if cost_of(frozenset(nomination.victims), priority) == best else "costlier"
