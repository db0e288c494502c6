"""How often a pod is refused that every kubelet consistent with what is known would have admitted, by policy and scope.

Random scenes of the soundness test, the kubelet being the exact model. Prints a JSON line for each rule: `passed`,
`refused` (of them `refused_for_pods_on_their_way`, which might come later and lose their place, and `refused_needlessly`: every
sampled state admits) and `unsound` (passed, but some state rejects; must be 0).
"""

from __future__ import annotations

import argparse
import json

from services.scheduler.deciding.config import CycleConfig
from shared.kubelet.admission import admit
from tests.scheduler.kubelet_worlds import NODE, consistent_states, scene, world_of
from tests.scheduler.test_cycle_soundness import RULES


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench completeness", description=__doc__)
    parser.add_argument("--scenes", type=int, default=1500)
    parser.add_argument("--states", type=int, default=25, help="states sampled of each scene")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    for policy, scope in RULES:
        print(json.dumps(measure(policy, scope, options)), flush=True)


def measure(policy: str, scope: str, options: argparse.Namespace) -> dict[str, object]:
    """One line of the bench."""
    passed = refused = needless = protecting = unsound = 0
    worst: list[int] = []
    for seed in range(options.seed, options.seed + options.scenes):
        seen = scene(seed, policy, scope)
        refusal = world_of(seen, CycleConfig()).cluster.verdict(seen.pod, NODE)
        fits = refusal is None
        admitted = all(admit(state, seen.pod).admitted for state in consistent_states(seen, seed, options.states))
        passed, refused = passed + fits, refused + (not fits)
        overtakes = refusal is not None and refusal.subject.startswith("may overtake")
        protecting += overtakes
        needless += admitted and not fits and not overtakes
        if fits and not admitted:
            unsound += 1
            worst.append(seed)
    share = round(needless / max(1, needless + passed), 4)
    return {
        "policy": policy, "scope": scope, "scenes": options.scenes, "passed": passed, "refused": refused,
        "refused_for_pods_on_their_way": protecting, "refused_needlessly": needless,
        "needless_share": share, "unsound": unsound, "unsound_seeds": worst[:5],
    }  # fmt: skip
