"""A pod passes a node only if its kubelet admits it in every state that is consistent with what is known.

The kubelet is the exact model; states are sampled: which of the unproven pods were admitted, in which order, among pods
that came and went.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.scheduler.deciding.config import CycleConfig
from services.scheduler.deciding.outcome import Placed
from shared.kubelet.admission import admit
from tests.scheduler.kubelet_worlds import consistent_states, scene, world_of

RULES = [
    (policy, scope)
    for policy in ("single-numa-node", "restricted", "best-effort")
    for scope in ("container", "pod")
] + [("none", "container")]  # fmt: skip


@pytest.mark.parametrize(("policy", "scope"), RULES)
def test_what_passes_is_admitted_in_every_consistent_state(policy: str, scope: str) -> None:
    @settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.integers(0, 1 << 30))
    def check(seed: int) -> None:
        seen = scene(seed, policy, scope)
        if not isinstance(world_of(seen, CycleConfig()).cluster.place(seen.pod), Placed):
            return
        for state in consistent_states(seen, seed, 12):
            verdict = admit(state, seen.pod)
            assert verdict.admitted, (verdict.reason, verdict.message)

    check()
