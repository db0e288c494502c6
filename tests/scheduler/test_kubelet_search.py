"""The search state of a node, kept while own reservations are added, equals a fresh one: a verdict
does not depend on earlier questions.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.scheduler.filter.topology.kubelet_search import (
    KubeletSearch,
    _new_search,
    kubelet_search_of,
)
from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.node_info import NodeInfo
from services.scheduler.snapshot.pod_class import Plan
from services.scheduler.snapshot.result import Placed, Unplaceable
from shared.domain.pod import Pod
from shared.domain.report import Placement, ZonedAmount
from shared.events.cluster_events import PodEnded, PodRunning
from shared.hints.admission_orders import SearchResult
from shared.hints.request import HintRequest, request_of
from tests.fixtures.examples import examples
from tests.scheduler.cycle_worlds import World, amounts, container, guaranteed, report, zone

POLICIES = ("single-numa-node", "restricted", "best-effort")


def pod(name: str, cpus: int, init: bool = False) -> Pod:
    init_containers = (container("i", amounts(cpus + 1), kind="init"),) if init else ()
    return guaranteed(name, *init_containers, container("c", amounts(cpus)))


@st.composite
def nodes(draw: st.DrawFn) -> World:
    """Return two zones of 8 CPUs with some listed pods and some pending ones, of which some have
    ended since the report.
    """
    world, policy = World(), draw(st.sampled_from(POLICIES))
    listed = draw(st.lists(st.tuples(st.integers(0, 1), st.integers(1, 3)), max_size=3))
    cpus_held = [sum(cpus for at, cpus in listed if at == number) for number in (0, 1)]
    world.observe("n")
    placements = [
        Placement("ns", f"r{number}", "c", (ZonedAmount("cpu", (at,), cpus * 1000),))
        for number, (at, cpus) in enumerate(listed)
    ]
    free = [zone(number, amounts(8 - cpus_held[number]), amounts(8)) for number in (0, 1)]
    for number, (_, cpus) in enumerate(listed):
        world.running(pod(f"r{number}", cpus), "n")
    world.report(report("n", free, policy, placements=placements))
    names = [f"r{number}" for number in range(len(listed))]
    for number, cpus in enumerate(draw(st.lists(st.integers(1, 3), max_size=2))):
        world.bound(pod(f"b{number}", cpus, draw(st.booleans())), "n")
        names.append(f"b{number}")
    for name in draw(st.lists(st.sampled_from(names), unique=True, max_size=2)) if names else ():
        world.fold(f"pod/{name}", PodEnded(name, "deleted", node="n"))
    return world


def same(kept: KubeletSearch, fresh: KubeletSearch) -> bool:
    if kept.states is None or fresh.states is None:
        return kept.states is fresh.states
    parts = [
        (each.bases, sorted(map(str, each.pending)), each.bounds, each.ended_pods)
        for each in (kept.states, fresh.states)
    ]
    return parts[0] == parts[1]


def planned(world: World, pod: Pod) -> tuple[NodeInfo, Plan]:
    node_info = world.cluster.nodes()[0]
    return node_info, world.cluster.evaluator.plan(
        world.cluster.evaluator.pod_class(pod), node_info
    )[0]


@given(nodes(), st.lists(st.tuples(st.integers(1, 3), st.booleans()), min_size=1, max_size=4))
@settings(max_examples=examples(150), deadline=None)
def test_an_assumed_pod_leads_to_the_states_of_a_new_search(
    world: World, reserved: list[tuple[int, bool]]
) -> None:
    for number, (cpus, init) in enumerate(reserved):
        assumed = pod(f"p{number}", cpus, init)
        node_info, plan = planned(world, assumed)
        assert same(kubelet_search_of(node_info, plan), _new_search(node_info, plan))
        world.cluster.assume(Placed("n", 0, 0, 0), assumed)
        node_info, plan = planned(world, assumed)
        assert same(kubelet_search_of(node_info, plan), _new_search(node_info, plan))


@given(nodes(), st.integers(0, 40), st.integers(0, 400))
@settings(max_examples=examples(100), deadline=None)
def test_an_answer_within_few_steps_is_the_same_after_a_search_with_many(
    world: World, few_steps: int, many_steps: int
) -> None:
    node_info, plan = planned(world, pod("p", 2))
    alone, asked = _new_search(node_info, plan), _new_search(node_info, plan)
    once, again = alone.exploration(plan.request), asked.exploration(plan.request)
    assert once is not None
    assert again is not None
    again.before(many_steps)
    assert (again.before(few_steps) is None) == (once.before(few_steps) is None)
    assert again.search(plan.request, few_steps) == once.search(plan.request, few_steps)


@given(nodes(), st.lists(st.tuples(st.integers(1, 6), st.integers(0, 60)), min_size=1, max_size=8))
@settings(max_examples=examples(100), deadline=None)
def test_a_kept_result_is_that_of_a_new_search(world: World, asked: list[tuple[int, int]]) -> None:
    for cpus, steps in asked:
        node_info, plan = planned(world, pod("p", cpus))
        request = request_of(plan.demand)
        assert kubelet_search_of(node_info, plan).result(request, steps) == _new_search(
            node_info, plan
        ).result(request, steps)


def test_an_explanation_searches_no_further_than_the_decision(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Thirty nodes on which no search ends: the ordinary budget is for eight of them, a larger one
    for four. Deciding asks them by score, explaining by name."""
    world = World(CycleConfig(steps_node=1, steps_last_resort=2, steps_pod=8))
    for number in range(30):
        name = f"n{number:02}"
        world.node(name, zone(0, amounts(8)), zone(1, amounts(8)), scope="pod")
        for attempt in range(3):
            world.bound(
                guaranteed(
                    f"{name}-{attempt}",
                    container("c", amounts(3 + attempt)),
                    container("d", amounts(1)),
                ),
                name,
            )
    tried, search = dict[KubeletSearch, int](), KubeletSearch.result

    def noted(kubelet_search: KubeletSearch, request: HintRequest, steps: int) -> SearchResult:
        tried[kubelet_search] = max(steps, tried.get(kubelet_search, 0))
        return search(kubelet_search, request, steps)

    monkeypatch.setattr(KubeletSearch, "result", noted)
    decision = world.cluster.place(pod("p", 3))
    assert isinstance(decision, Unplaceable)
    assert list(decision.counts.values()) == [30]
    assert 4 <= sum(steps == 2 for steps in tried.values()) <= 8
    assert 8 <= sum(steps > 0 for steps in tried.values()) <= 16


def test_a_pod_keeps_its_zone_if_it_could_not_have_come_before_a_pod_that_runs() -> None:
    """Before `runs` came, zone 0 had 2 CPUs: `first` would have started there, and would have been
    rejected. But `first` was sent later. If `second` overtakes it, `second` takes zone 1, and
    `first` starts in zone 2, where its container finds no room.
    """
    world = World()
    sizes = [zone(number, amounts(free), amounts(8)) for number, free in enumerate((2, 3, 1, 3))]
    world.node("n", *sizes)
    world.bound(guaranteed("runs", container("c", amounts(2))), "n")
    world.fold("pod/runs", PodRunning("runs", "n", started_s=5))
    first = guaranteed("first", container("i", amounts(1), kind="init"), container("c", amounts(3)))
    second = guaranteed(
        "second", container("i", amounts(2), kind="init"), container("c", amounts(3))
    )
    assert isinstance(world.cluster.place(first), Placed)
    world.bound(first, "n")
    assert isinstance(world.cluster.place(second), Unplaceable)
