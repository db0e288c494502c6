"""How often a pod is refused that the kubelet would have admitted in every state consistent with what is known: measured on
the scenes of the soundness test, printed by rule (`pytest -s`), and held below what it is known to be.

`python -m tests.bench completeness` measures more of them.
"""

from __future__ import annotations

import argparse

import pytest

from tests.bench.completeness import measure
from tests.scheduler.test_cycle_soundness import RULES

SCENES = argparse.Namespace(scenes=200, states=20, seed=0)
MOST_NEEDLESS = {"single-numa-node": 0.15, "restricted": 0.15, "best-effort": 0.45, "none": 0.35}
"""Share of needless refusals among all that every state admits."""


@pytest.mark.parametrize(("policy", "scope"), RULES)
def test_few_pods_are_refused_that_every_consistent_state_admits(policy: str, scope: str) -> None:
    found = measure(policy, scope, SCENES)
    print(found)
    assert found["unsound"] == 0
    passed, needless, share = (found[name] for name in ("passed", "refused_needlessly", "needless_share"))
    assert isinstance(passed, int)
    assert passed > 5, "the scenes say nothing"
    assert isinstance(share, float)
    assert share <= MOST_NEEDLESS[policy], needless
