"""Pending pods that request resources of a custom provider: a zone with sufficient amounts may
still not be their zone. A licence exists in one zone only, although the report shows some in each
(`tests/hints/licences.py`). The new pod requests none.
"""

from __future__ import annotations

import random

import pytest

from services.scheduler.filter.topology.fit import filter_result, is_sure, search_result
from services.scheduler.snapshot.result import Placed
from shared.domain.pod import Pod
from shared.domain.refusal import Reason, Refusal
from shared.hints import registry
from shared.hints.admission_orders import SearchResult
from tests.hints.licences import LICENCE, Licences
from tests.scheduler.cycle_worlds import (
    DEFAULTS,
    World,
    amounts,
    container,
    guaranteed,
    report,
    zone,
)
from tests.scheduler.test_cycle_soundness import RULES

STEPS = 20_000
ALIGNED = [rule for rule in RULES if rule[0] in ("single-numa-node", "restricted")]


def use(monkeypatch: pytest.MonkeyPatch, provider: Licences) -> None:
    monkeypatch.setattr(registry, "PROVIDERS", (*registry.PROVIDERS, provider))


def world(policy: str, scope: str, *cpus: int) -> World:
    """Return a cluster with one node that has these CPUs in its zones."""
    new_world, zones = (
        World(),
        [zone(at, amounts(cpu=each, memory=16, **{LICENCE: 4})) for at, each in enumerate(cpus)],
    )
    new_world.observe(
        "n", allocatable={"cpu": 64_000, "memory": 1 << 40, "pods": 110, LICENCE: 100}
    )
    new_world.report(report("n", zones, policy, scope, tracked=("cpu", "memory", LICENCE)))
    return new_world


def asking(name: str, *cpus: int, licences: int = 0) -> Pod:
    parts = [
        container(f"c{at}", amounts(cpu=each, memory=1, **{LICENCE: licences}))
        for at, each in enumerate(cpus)
    ]
    return guaranteed(name, *parts)


def by_search(world: World, pod: Pod) -> SearchResult:
    """Return the result of hints and merge, without bounds."""
    pod_class, node_info = world.cluster.evaluator.pod_class(pod), world.cluster.node("n")
    assert node_info is not None
    return search_result(node_info, world.cluster.evaluator.plan(pod_class, node_info)[0], STEPS)


def refusal(world: World, pod: Pod) -> Refusal:
    refused = world.cluster.verdict(pod, "n")
    assert refused is not None
    return refused


@pytest.mark.parametrize("with_hints", [True, False])
@pytest.mark.parametrize(("policy", "scope"), ALIGNED)
def test_a_zone_that_only_amounts_leave_is_none(
    monkeypatch: pytest.MonkeyPatch, policy: str, scope: str, with_hints: bool
) -> None:
    """The new pod would take the lowest zone, the only one for the pending pod."""
    use(monkeypatch, Licences(home=0, open=not with_hints))
    judged = world(policy, scope, 8, 8)
    judged.bound(asking("coming", 6, licences=1), "n")
    assert by_search(judged, asking("new", 6)) == "endangers"
    assert refusal(judged, asking("new", 6)).reason is Reason.NOT_ON_EVERY_BRANCH
    assert isinstance(judged.cluster.place(asking("small", 2)), Placed)


def test_an_own_reservation_is_on_its_way_too(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, Licences(home=0))
    judged = world("single-numa-node", "container", 8, 8)
    coming = asking("coming", 6, licences=1)
    placed = judged.cluster.place(coming)
    assert isinstance(placed, Placed)
    judged.cluster.assume(placed, coming)
    assert refusal(judged, asking("new", 6)).reason is Reason.NOT_ON_EVERY_BRANCH


def test_best_effort_may_refuse_too_where_the_provider_minds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The node has enough, and each resource has a zone. But this provider gives nothing to a pod
    with CPUs of another zone.
    """
    use(monkeypatch, Licences(home=0, strict=True))
    judged = world("best-effort", "pod", 8, 8)
    judged.bound(asking("coming", 6, licences=1), "n")
    assert by_search(judged, asking("new", 6)) == "endangers"
    assert refusal(judged, asking("new", 6)).reason is Reason.NOT_ON_EVERY_BRANCH


def test_bounds_still_decide_next_to_pods_that_request_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use(monkeypatch, Licences(home=0))
    judged = world("single-numa-node", "container", 8, 8)
    judged.bound(asking("coming", 6), "n")
    pod_class, node_info = (
        judged.cluster.evaluator.pod_class(asking("new", 6)),
        judged.cluster.node("n"),
    )
    assert node_info is not None
    plan = judged.cluster.evaluator.plan(pod_class, node_info)[0]
    assert is_sure(node_info, pod_class, plan)
    assert filter_result(node_info, pod_class, plan, DEFAULTS, 0) == "admitted"


@pytest.mark.parametrize(("policy", "scope"), RULES)
def test_the_verdict_is_that_of_the_search(
    monkeypatch: pytest.MonkeyPatch, policy: str, scope: str
) -> None:
    taken, doubtful = 0, 0
    for seed in range(120):
        rng = random.Random(f"{seed} on their way")
        cpus = [rng.choice((4, 6, 8)) for _ in range(rng.choice((2, 3)))]
        provider = Licences(
            rng.randrange(len(cpus)), strict=rng.random() < 0.5, open=rng.random() < 0.5
        )
        with monkeypatch.context() as patch:
            use(patch, provider)
            judged = world(policy, scope, *cpus)
            for number in range(rng.randint(1, 3)):
                judged.bound(
                    asking(f"coming{number}", *sizes(rng), licences=rng.randint(0, 2)), "n"
                )
            new = asking("new", *sizes(rng), licences=rng.choice((0, 0, 0, 1)))
            expected, searched = by_search(judged, new), judged.cluster.verdict(new, "n")
            assert isinstance(judged.cluster.place(new), Placed) is (searched is None), (
                seed,
                provider,
            )
        assert (searched is None) is (expected == "admitted"), (seed, provider, expected, searched)
        taken, doubtful = taken + (searched is None), doubtful + (expected == "endangers")
    assert taken > 30
    assert doubtful > 2 or policy == "none"


def sizes(rng: random.Random) -> list[int]:
    return [rng.choice((1, 2, 3, 5)) for _ in range(rng.choice((1, 1, 2)))]
