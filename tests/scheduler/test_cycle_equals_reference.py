"""The columnar cycle equals the plain reference over random clusters, pods and sequences of
events.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.result import Placed
from shared.domain.pod import Constraints, ContainerKind, Pod, Qos
from shared.domain.report import Placement, ZonedAmount
from shared.events.cluster_events import NodeEnded, PodEnded
from tests.fixtures.examples import examples
from tests.scheduler.cycle_worlds import GPU, World, amounts, container, guaranteed, report, zone
from tests.scheduler.reference_cycle import Reference

POLICIES = ("single-numa-node", "single-numa-node", "restricted", "best-effort", "none")
BOUNDLESS = CycleConfig(max_shapes=4, steps_node=150, steps_last_resort=150, steps_pod=600)
NAMES = ("n0", "n1", "n2", "n3")

amounts_held = st.builds(
    amounts, cpu=st.integers(0, 7), memory=st.integers(0, 5), gpu=st.integers(0, 2)
)
KINDS: tuple[ContainerKind, ...] = ("app", "app", "app", "init", "sidecar")
CLASSES: tuple[Qos, ...] = ("Guaranteed", "Guaranteed", "Guaranteed", "Burstable")
kinds = st.sampled_from(KINDS)


@st.composite
def pods(draw: st.DrawFn) -> Pod:
    """Draw pods of one to three containers, mostly Guaranteed."""
    count = draw(st.integers(1, 3))
    containers = sorted(
        (container(f"c{at}", draw(amounts_held), draw(kinds)) for at in range(count)),
        key=lambda each: each.kind == "app",
    )
    pod = guaranteed(
        "",
        *containers,
        constraints=draw(st.sampled_from((Constraints(), Constraints(node_name="n1")))),
    )
    qos = draw(st.sampled_from(CLASSES))
    return Pod(
        uid="",
        namespace="ns",
        name="",
        qos=qos,
        containers=pod.containers,
        constraints=pod.constraints,
    )


@st.composite
def steps(draw: st.DrawFn) -> tuple[Any, ...]:
    """Return one random change."""
    kind = draw(
        st.sampled_from(
            ("node", "place", "place", "place", "place", "foreign", "end", "report", "drop")
        )
    )
    name = draw(st.sampled_from(NAMES))
    if kind == "node":
        zones = tuple(
            draw(st.tuples(amounts_held, amounts_held)) for _ in range(draw(st.integers(1, 3)))
        )
        return (
            kind,
            name,
            zones,
            draw(st.sampled_from(POLICIES)),
            draw(st.sampled_from(("container", "container", "pod"))),
        )
    return kind, name, draw(pods()), draw(st.booleans()), draw(st.integers(0, 50))


class Pair:
    """A cluster and a reference that get the same events."""

    def __init__(self, strategy: str) -> None:
        config = msgspec.structs.replace(BOUNDLESS, strategy=strategy)
        self.world, self.reference = World(config), Reference(config)
        self.count = 0
        self.live: list[tuple[Pod, str]] = []

    def follow(self) -> None:
        """Give every node of the ledger to the reference."""
        names = set(self.reference.nodes)
        for name, node in self.world.ledger.nodes.items():
            self.reference.put_node(node)
            names.discard(name)
        for name in names:
            self.reference.drop_node(name)
        for pod, name in self.live:
            if pod.uid not in self.world.ledger.pods and name in self.reference.nodes:
                self.reference.charge(name, pod)

    def named(self, pod: Pod) -> Pod:
        self.count += 1
        return guaranteed_like(pod, f"p{self.count}")

    def step(self, kind: str, name: str, *rest: Any) -> None:
        getattr(self, kind)(name, *rest)

    def node(self, name: str, zones: tuple[Any, ...], policy: str, scope: str) -> None:
        node_zones = [
            zone(3 * at, _least(free, size), size) for at, (free, size) in enumerate(zones)
        ]
        self.forget_overlay(name)
        self.world.node(name, *node_zones, policy=policy, scope=scope)
        self.follow()

    def forget_overlay(self, name: str) -> None:
        """Refresh a node, which forgets reservations that the fold has not reached."""
        self.live = [
            (pod, at) for pod, at in self.live if at != name or pod.uid in self.world.ledger.pods
        ]

    def place(self, _: str, shape: Pod, fold_it: bool, __: int) -> None:
        pod = self.named(shape)
        placed, expected = self.world.cluster.place(pod), self.reference.place(pod)
        scores = self.reference.scores(pod)
        if self.reference.over_budget:
            return
        for name in self.reference.nodes:
            assert (self.world.cluster.verdict(pod, name) is None) == (name in scores), name
        assert self.world.cluster.waiting_could_fit(pod, NAMES) == bool(scores)
        if expected is None:
            assert not isinstance(placed, Placed)
            assert placed.message.startswith(f"0/{len(self.reference.nodes)} nodes")
            assert sum(placed.counts.values()) == len(self.reference.nodes)
            return
        assert isinstance(placed, Placed)
        assert (placed.node, placed.score) == expected
        assert placed.candidates >= len(scores)
        charged = self.world.cluster.assume(placed, pod)
        self.live.append((pod, placed.node))
        if fold_it:
            self.forget_overlay_but(placed.node, pod)
            self.world.bound(pod, placed.node)
            assert charged == self.world.ledger.nodes[placed.node].charges[pod.uid].zones
        self.bounds_hold()
        self.follow()

    def bounds_hold(self) -> None:
        """Check that no kept score is below the true score. Otherwise the best node could be
        skipped.
        """
        evaluator = self.world.cluster.evaluator
        for shape in [each for each in evaluator._pod_classes.values() if each.is_evaluated]:
            for node_info in self.world.cluster.nodes():
                assert evaluator.cache.scores[shape.row, node_info.slot] >= evaluator.evaluate(
                    shape, node_info
                ), (
                    node_info.name,
                    shape.pod,
                )

    def forget_overlay_but(self, name: str, pod: Pod) -> None:
        self.live = [
            (p, at)
            for p, at in self.live
            if at != name or p.uid in (*self.world.ledger.pods, pod.uid)
        ]

    def foreign(self, name: str, shape: Pod, _: bool, __: int) -> None:
        if name in self.world.ledger.nodes:
            pod = self.named(shape)
            self.forget_overlay(name)
            self.world.bound(pod, name)
            self.live.append((pod, name))
            self.follow()

    def end(self, _: str, __: Pod, ___: bool, which: int) -> None:
        bound = [(pod, name) for pod, name in self.live if pod.uid in self.world.ledger.pods]
        if bound:
            pod, name = bound[which % len(bound)]
            self.live.remove((pod, name))
            self.forget_overlay(name)
            self.world.fold(f"pod/{pod.uid}", PodEnded(uid=pod.uid, cause="deleted", node=name))
            self.follow()

    def report(self, name: str, _: Pod, __: bool, which: int) -> None:
        """Fold a report that confirms one of the node's pods in its first possible zones, whatever
        is free there.
        """
        node = self.world.ledger.nodes.get(name)
        if node is None or node.basis is None:
            return
        self.forget_overlay(name)
        placements = []
        for charge in list(node.charges.values())[: which % 3]:
            for part in charge.demand:
                where = charge.possible.get(part.name) or charge.possible.get("") or (0,)
                shown = tuple(ZonedAmount(n, (where[0],), a) for n, a in part.amounts.items())
                placements.append(Placement("ns", charge.key.split("/")[1], part.name, shown))
        basis = node.basis
        time_ms = basis.boot_time_ms + 1
        self.world.report(report(name, basis.zones, basis.policy, basis.scope, placements, time_ms))
        self.follow()

    def drop(self, name: str, *_: Any) -> None:
        if name in self.world.ledger.nodes and self.world.ledger.nodes[name].observed is not None:
            self.live = [(pod, at) for pod, at in self.live if at != name]
            self.world.fold(f"node/{name}", NodeEnded(name, name, "deleted"))
            self.follow()


def guaranteed_like(pod: Pod, name: str) -> Pod:
    """Return an equal pod with another name."""
    return Pod(
        uid=name,
        namespace="ns",
        name=name,
        qos=pod.qos,
        containers=pod.containers,
        constraints=pod.constraints,
    )


def _least(free: dict[str, int], size: dict[str, int]) -> dict[str, int]:
    return {name: min(free.get(name, 0), held) for name, held in size.items()}


@pytest.mark.parametrize("strategy", ["BestFit", "LeastAllocated"])
@settings(max_examples=examples(40), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(steps(), min_size=4, max_size=25))
def test_the_cycle_places_as_the_reference_does(
    strategy: str, history: list[tuple[Any, ...]]
) -> None:
    pair = Pair(strategy)
    big = amounts(8, 6, 2)
    pair.node("n0", ((big, big), (amounts(5, 6, 1), big)), "single-numa-node", "container")
    pair.node("n1", ((big, big), (amounts(7, 4, 2), big)), "single-numa-node", "container")
    for kind, name, *rest in history:
        pair.step(kind, name, *rest)
    assert GPU in big
