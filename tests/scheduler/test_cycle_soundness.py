"""A node passes if, and only if, every kubelet state that is consistent with the production report
and the ledger admits the pod.

The kubelet model is the judge: states are enumerated over it (`kubelet_worlds.truth`), reports are
the production exporter's. `python -m tests.bench completeness` runs more scenes.
"""

from __future__ import annotations

from typing import Any

import pytest

from services.scheduler.explain.undecided import PICKS
from services.scheduler.snapshot.config import CycleConfig
from shared.kubelet.admission import admit, drop_stale
from tests.kubelet.machines import container, guaranteed, kubelet
from tests.scheduler.kubelet_worlds import NODE, Outcome, Scene, free_of, measured, truth, world_of

RULES = [
    (policy, scope)
    for policy in ("single-numa-node", "restricted", "best-effort")
    for scope in ("container", "pod")
] + [("none", "container")]  # fmt: skip


@pytest.mark.parametrize(("policy", "scope"), RULES)
def test_where_all_pods_are_proven_the_verdict_is_the_kubelets(policy: str, scope: str) -> None:
    outcome = measured(range(290), policy, scope, unconfirmed=0)
    assert (outcome.unsound, outcome.refused_needlessly, outcome.bounded_by.keys() - {PICKS}) == (
        [],
        [],
        set(),
    )
    assert outcome.passed > 90
    assert outcome.refused > 90


@pytest.mark.parametrize(("policy", "scope"), RULES)
def test_next_to_pending_admissions_it_is_sound_and_nearly_exact(policy: str, scope: str) -> None:
    outcome = measured(range(1000, 1120), policy, scope, unconfirmed=3)
    assert outcome.unsound == []
    assert len(outcome.refused_needlessly) <= 1, outcome.refused_needlessly
    assert outcome.passed > 30


@pytest.mark.parametrize(("policy", "scope"), RULES)
def test_next_to_pods_in_unconfirmed_zones_it_is_sound_and_nearly_exact(
    policy: str, scope: str
) -> None:
    outcome = measured(range(5000, 5080), policy, scope, unconfirmed=3, running=0.7)
    assert outcome.unsound == []
    assert len(outcome.refused_needlessly) <= 1, outcome.refused_needlessly
    assert outcome.passed > 20


@pytest.mark.parametrize(("policy", "scope"), RULES)
def test_no_bound_promises_more_than_a_search_finds(policy: str, scope: str) -> None:
    outcome = measured(
        range(4000, 4020), policy, scope, unconfirmed=6, running=0.3, by_search=True, zones=5
    )
    assert outcome.unsound == []
    assert outcome.passed > 2


@pytest.mark.parametrize(("policy", "scope"), RULES)
def test_without_checkpoints_it_is_sound_and_says_what_it_does_not_know(
    policy: str, scope: str
) -> None:
    outcome = measured(range(2000, 2080), policy, scope, unconfirmed=2, checkpoints=False)
    assert outcome.unsound == []
    assert outcome.passed > 20
    assert isinstance(outcome, Outcome)


def test_what_an_init_container_keeps_may_lie_in_several_zones() -> None:
    """The init container has 16 CPUs in zones of 4. The app container after it reused none of them
    (policy none).
    """
    outcome = measured([2202596], "none", "container", unconfirmed=0, checkpoints=False, zones=8)
    assert (outcome.refused, outcome.unsound) == (1, [])


def test_what_two_init_containers_keep_in_two_zones_is_held_in_both() -> None:
    """3 CPUs of one zone and 1 of the other, by the checkpoint: 2 are left for a pod of 3
    (best-effort).
    """
    outcome = measured([4355], "best-effort", "container", unconfirmed=3, zones=2)
    assert (outcome.refused, outcome.unsound) == (1, [])


@pytest.mark.parametrize(
    ("seed", "scope", "zones"), [(997262, "container", 4), (998159, "pod", 4), (991658, "pod", 3)]
)
def test_a_pod_rejected_from_one_state_alone_may_lose_its_place_in_another(
    seed: int, scope: str, zones: int
) -> None:
    """Without the checkpoint, memory in two zones may be a group of them or lie in each alone. From
    one of the two states a pending pod is rejected in any case; from the other it finds zones until
    a new pod takes one."""
    outcome = measured([seed], "best-effort", scope, unconfirmed=3, checkpoints=False, zones=zones)
    assert (outcome.refused, outcome.unsound) == (1, [])


@pytest.mark.parametrize("scope", ["container", "pod"])
@pytest.mark.parametrize("policy", ["restricted", "best-effort"])
def test_with_cpus_aligned_by_socket_no_zone_is_judged_alone(policy: str, scope: str) -> None:
    """Both zones of a socket are as good as one to the CPU Manager; no Memory Manager distinguishes
    them.
    """
    settings: dict[str, Any] = {
        "cpu_options": {"align-by-socket": "true"},
        "memory_policy": "None",
        "reserved_memory": {},
    }
    outcome = measured(range(3040, 3200), policy, scope, unconfirmed=2, zones=4, **settings)
    assert outcome.unsound == []
    assert len(outcome.refused_needlessly) <= 1, outcome.refused_needlessly
    assert outcome.passed > 60


def test_what_init_containers_keep_lies_anywhere_where_cpus_are_aligned_by_socket() -> None:
    """The app container has 1 CPU in zone 0. Its init containers keep 8 CPUs in the other zone of
    the socket.
    """
    settings: dict[str, Any] = {
        "cpu_options": {"align-by-socket": "true"},
        "memory_policy": "None",
        "reserved_memory": {},
    }
    outcome = measured(
        [3673], "restricted", "container", unconfirmed=0, checkpoints=False, zones=4, **settings
    )
    assert (outcome.refused, outcome.unsound, outcome.refused_needlessly) == (1, [], [])
    assert outcome.bounded_by == {"hidden init resources": 1}


def test_restricted_takes_two_zones_of_one_socket_where_cpus_are_aligned_by_socket() -> None:
    """6 CPUs fit one zone when it is empty; 2 and 4 are left in two that share a socket, which the
    CPU Manager prefers too.
    """
    state = kubelet(
        4,
        "restricted",
        cpu_options={"align-by-socket": "true"},
        memory_policy="None",
        reserved_memory={},
    )
    for name, cpus in (("a", 4), ("b", 4), ("c", 8), ("d", 8)):
        state = admit(state, guaranteed(name, container(cpu=cpus, memory=1))).state
    seen = Scene(drop_stale(state), (), guaranteed("new", container(cpu=6, memory=1)))
    assert [free["cpu"] for free in free_of(seen.base).values()] == [2000, 4000, 0, 0]
    assert truth(seen) == "admitted"
    assert world_of(seen, CycleConfig()).cluster.verdict(seen.pod, NODE) is None


@pytest.mark.parametrize(
    "options", [{"full-pcpus-only": "true"}, {"distribute-cpus-across-numa": "true"}]
)
@pytest.mark.parametrize("policy", ["restricted", "best-effort"])
def test_options_of_the_cpu_manager_are_known_too(policy: str, options: dict[str, str]) -> None:
    outcome = measured(range(3000, 3080), policy, "container", unconfirmed=1, cpu_options=options)
    assert (outcome.unsound, outcome.refused_needlessly) == ([], [])
    assert outcome.passed > 15
