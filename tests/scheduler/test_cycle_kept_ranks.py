"""Ranks that are kept, and updated for changes only, choose the node that a plain look at every
node chooses.
"""

from __future__ import annotations

from typing import Any

import pytest
import xxhash
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.scheduler.score.ranks import RULED_OUT, score_of
from services.scheduler.select.evaluate import evaluate_node
from services.scheduler.snapshot import kernel
from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.result import Placed
from shared.domain.pod import Pod
from shared.domain.report import Zone
from shared.events.cluster_events import NodeEnded, PodEnded
from shared.events.scheduling_events import Wanted
from tests.fixtures.examples import examples
from tests.scheduler.cycle_worlds import World, amounts, container, guaranteed, zone

STEPS = 1024
WHOLE = amounts(16, 64, 4)
FREE = st.tuples(st.integers(0, 16), st.integers(0, 64), st.integers(0, 4))
PART = st.one_of(
    st.tuples(st.integers(1, 8), st.integers(1, 16), st.integers(0, 1)),
    st.tuples(st.just(20), st.just(80), st.just(0)),
)
ASKED = st.lists(PART, min_size=1, max_size=3)
WANTED = st.lists(
    st.builds(lambda part, power: Wanted(amounts(*part), 2**power), PART, st.integers(0, 12)),
    max_size=4,
)
POLICIES = ("single-numa-node", "single-numa-node", "restricted", "best-effort", "none")
TURNS = st.tuples(
    st.sampled_from(
        ("place", "place", "place", "place", "bound", "end", "node", "drop", "want", "wait", "wait")
    ),
    st.integers(0, 99),
    st.lists(FREE, min_size=1, max_size=3),
    WANTED,
    st.sampled_from(POLICIES),
)


class Kept:
    """A cluster with each choice compared."""

    def __init__(self, strategy: str, nodes: int, scope: str = "container") -> None:
        self.scope = scope
        self.world = World(
            CycleConfig(strategy=strategy, steps_node=STEPS, steps_last_resort=STEPS, max_shapes=4)
        )
        self.count, self.charged, self.live = 0, dict[str, str](), list[tuple[Pod, str]]()
        for number in range(nodes):
            self.node(
                number,
                [(16 - number % 7, 64 - number % 5, number % 5), (16 - number % 11, 60, 4)],
                "single-numa-node",
            )

    def node(self, number: int, zones: list[tuple[int, int, int]], policy: str) -> None:
        node_zones: list[Zone] = [zone(at, amounts(*free), WHOLE) for at, free in enumerate(zones)]
        self.world.node(f"n{number}", *node_zones, policy=policy, scope=self.scope)

    def drop(self, number: int) -> None:
        name = f"n{number}"
        if name in self.world.ledger.nodes and self.world.ledger.nodes[name].observed is not None:
            self.world.fold(f"node/{name}", NodeEnded(name, name, "deleted"))

    def place(self, asked: list[tuple[int, int, int]], bound: bool) -> None:
        self.count += 1
        pod = guaranteed(
            f"p{self.count}",
            *(container(f"c{at}", amounts(*each)) for at, each in enumerate(asked)),
        )
        placed, expected = self.world.cluster.place(pod), self.plainly(pod)
        decision = None
        if isinstance(placed, Placed):
            node_info = self.world.cluster.node(placed.node)
            assert node_info is not None
            evaluator = self.world.cluster.evaluator
            decision = evaluator.rank(evaluator.pod_class(pod), node_info), placed.node
            assert placed.score == score_of(decision[0])
        assert decision == expected
        if isinstance(placed, Placed):
            self.world.cluster.assume(placed, pod)
            if bound:
                self.world.bound(pod, placed.node)
                self.live.append((pod, placed.node))

    def plainly(self, pod: Pod) -> tuple[int, str] | None:
        """Return the best node with every node evaluated without caches. Of equal nodes, the one
        whose hash is nearest to the pod's wins.
        """
        cluster = self.world.cluster
        pod_class, salt, decision = (
            cluster.evaluator.pod_class(pod),
            xxhash.xxh3_64_intdigest(pod.uid.encode()),
            [],
        )
        for node_info in cluster.nodes():
            plan, barred = cluster.evaluator.plan(pod_class, node_info)
            score = (
                RULED_OUT
                if barred
                else evaluate_node(
                    pod_class, plan, node_info, cluster.config, cluster.evaluator.strategy, STEPS
                )
            )
            if score > RULED_OUT:
                decision.append(
                    (
                        -score,
                        xxhash.xxh3_64_intdigest(node_info.name.encode()) ^ salt,
                        node_info.name,
                    )
                )
        return (-min(decision)[0], min(decision)[2]) if decision else None

    def turn(
        self,
        kind: str,
        number: int,
        zones: Any,
        wanted: list[Wanted],
        policy: str,
        asked: list[Any],
        nodes: int,
    ) -> None:
        if kind == "node":
            self.node(number % nodes, zones, policy)
        elif kind == "drop":
            self.drop(number % nodes)
        elif kind == "want":
            self.world.cluster.rank_by(tuple(wanted))
        elif kind == "end" and self.live:
            pod, node = self.live.pop(number % len(self.live))
            self.world.fold(f"pod/{pod.uid}", PodEnded(uid=pod.uid, cause="deleted", node=node))
        elif kind == "wait":
            pod = guaranteed(
                "waits",
                *(
                    container(f"c{at}", amounts(*each))
                    for at, each in enumerate(asked[number % len(asked)])
                ),
            )
            self.world.cluster.waiting_could_fit(
                pod, [f"n{(number + at) % nodes}" for at in range(2)]
            )
        else:
            self.place(asked[number % len(asked)], kind == "bound")


@pytest.mark.parametrize(
    ("strategy", "compiled"),
    [
        ("KeepRoom", True),
        ("KeepRoom", False),
        ("BestFit", True),
        ("MostAllocated", True),
        ("LeastNUMANodes", True),
    ],
)
@settings(max_examples=examples(40), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.sampled_from((3, 40)),
    st.sampled_from(("container", "pod")),
    st.lists(ASKED, min_size=1, max_size=6),
    st.lists(TURNS, min_size=5, max_size=40),
)
def test_the_chosen_node_is_that_of_a_plain_look_at_every_node(
    strategy: str,
    compiled: bool,
    nodes: int,
    scope: str,
    asked: list[list[tuple[int, int, int]]],
    turns: list[tuple[Any, ...]],
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        if not compiled:
            patched.setattr(kernel, "COMPILED", None)
        kept = Kept(strategy, nodes, scope)
        for kind, number, zones, wanted, policy in turns:
            kept.turn(kind, number, zones, wanted, policy, asked, nodes)


@pytest.mark.parametrize("nodes", [8, 600])
def test_a_long_life_of_many_changes_chooses_the_same(nodes: int) -> None:
    kept = Kept("KeepRoom", nodes)
    kept.world.cluster.rank_by((Wanted(amounts(8, 16, 1), 4096), Wanted(amounts(3, 8), 256)))
    shapes = [[(1, 2, 0)], [(4, 8, 1)], [(2, 4, 0), (2, 4, 0)], [(1, 1, 0), (2, 4, 1)]]
    for number in range(700 if nodes < 100 else 40):
        kept.place(shapes[number * 7 % 4 if number % 50 < 40 else 0], bound=number % 3 == 0)
        if number % 6 == 0:
            asks = guaranteed("waits", container("c", amounts(*shapes[number % 3][0])))
            kept.world.cluster.waiting_could_fit(
                asks, [f"n{number * 11 % nodes}", f"n{number * 13 % nodes}"]
            )
        if number % 5 == 0:
            kept.node(
                number * 13 % nodes,
                [(16 - number % 16, 64, number % 5), (number % 9, 30, 1)],
                "single-numa-node",
            )
        if nodes > 100 and number % 10 == 9:
            for removed in range(0, nodes, 2):
                kept.node(
                    removed,
                    [(16 - removed % 16, 64 - number % 7, number % 5), (number % 9, 30, 1)],
                    "single-numa-node",
                )


def test_changes_that_the_log_forgot_are_ranked() -> None:
    kept = Kept("KeepRoom", 40)
    for pod_class in ([(1, 1, 0)], [(2, 2, 0)]):
        kept.place(pod_class, bound=False)
    for number in range(1500):
        kept.node(number % 7, [(16 - number % 16, 64, number % 5)], "single-numa-node")
        if number % 100 == 0:
            kept.place([(1, 1, 0)], bound=False)
    kept.place([(2, 2, 0)], bound=False)


@pytest.mark.parametrize("strategy", ["KeepRoom", "BestFit"])
def test_a_pod_with_a_part_for_several_zones_is_scored_under_restricted(strategy: str) -> None:
    kept = Kept(strategy, 2)
    for number in range(2):
        kept.node(number, [(16, 64, 4), (16, 64, 4), (16, 64, 4)], "restricted")
    for _ in range(2):
        kept.place([(20, 80, 0), (2, 4, 0)], bound=False)


def test_a_node_that_was_evaluated_for_a_waiting_pod_is_among_the_best() -> None:
    kept, asked = Kept("KeepRoom", 8), [(2, 4, 0)]
    kept.world.cluster.rank_by((Wanted(amounts(8, 16, 1), 4096),))
    for number in range(40):
        kept.place(asked, bound=False)
        kept.node(number % 8, [(2 + number % 9, 64, number % 3)], "single-numa-node")
        kept.world.cluster.waiting_could_fit(
            guaranteed("waits", container("c0", amounts(2, 4))), [f"n{number % 8}"]
        )
        kept.node((number + 3) % 8, [(number % 16, 64, 4)], "single-numa-node")
