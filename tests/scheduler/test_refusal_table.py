"""The kept table of refusals says what asking each node anew says, whatever changed in between and
however many nodes are asked at once.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.scheduler.explain import explain
from services.scheduler.explain.refusal_table import EVICTION_MAY_HELP, MOST_KINDS, RefusalTable
from services.scheduler.explain.wording import best_zone, headline
from services.scheduler.filter.constraints.registry import constrained
from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.node_arrays import Slots
from services.scheduler.snapshot.pod_class import PodClass
from services.scheduler.snapshot.result import Placed
from shared.domain.constraints import REQUIRED
from shared.domain.pod import Pod
from shared.domain.refusal import Reason, Refusal
from shared.events.cluster_events import NodeEnded, PodEnded, Taint
from tests.fixtures.examples import examples
from tests.scheduler.cycle_worlds import World, amounts, container, guaranteed, report, zone

WHOLE = amounts(8, 32, 2)
FREE = st.tuples(st.integers(0, 8), st.integers(0, 32), st.integers(0, 2))
PART = st.tuples(st.integers(0, 10), st.integers(1, 40), st.integers(0, 3))
PARTS = st.lists(PART, min_size=1, max_size=2)
POLICY = st.sampled_from(("single-numa-node",) * 4 + ("restricted", "none"))
SCOPE = st.sampled_from(("container", "pod"))
NODE = st.tuples(
    st.lists(FREE, min_size=1, max_size=3), POLICY, SCOPE, st.integers(0, 2), st.integers(0, 9)
)
NAMES = [f"n{number}" for number in range(6)]
STEP = st.one_of(
    st.tuples(st.just("node"), st.sampled_from(NAMES), NODE),
    st.tuples(st.just("node"), st.sampled_from(NAMES), NODE),
    st.tuples(st.just("bound"), st.sampled_from(NAMES), PARTS),
    st.tuples(st.just("assumed"), st.sampled_from(NAMES), PARTS),
    st.tuples(st.just("ended"), st.just(""), st.none()),
    st.tuples(st.just("removed"), st.sampled_from(NAMES), st.none()),
    st.tuples(st.just("asked"), st.sampled_from(("alone", "apart")), st.none()),
)
CONFIGS = (CycleConfig(), CycleConfig(steps_node=2, steps_last_resort=4, steps_pod=4))


@pytest.mark.parametrize("shortages_from", [1, explain.SHORTAGES_FROM, 100])
@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.sampled_from(CONFIGS),
    st.lists(PARTS, min_size=1, max_size=3),
    st.lists(NODE, min_size=1, max_size=6),
    st.lists(STEP, max_size=12),
)
def test_the_kept_table_is_what_asking_each_node_anew_says(
    shortages_from: int, config: CycleConfig, asked: Any, nodes: Any, steps: Any
) -> None:
    usual, explain.SHORTAGES_FROM = explain.SHORTAGES_FROM, shortages_from
    try:
        story = Story(config, asked)
        for name, node in zip(NAMES, nodes, strict=False):
            story.node(name, node)
        story.asked("alone")
        for kind, name, given_ in steps:
            getattr(story, kind)(*([name, given_] if given_ is not None else [name]))
        story.asked("alone")
        story.asked("apart")
    finally:
        explain.SHORTAGES_FROM = usual


def test_kinds_are_bounded_and_absurd_amounts_fit() -> None:
    """A taint whose value changes again and again makes a kind each time."""
    table, changed_at, slots = RefusalTable(), np.zeros(1, dtype=np.int64), np.array([0])
    for number in range(3 * MOST_KINDS):
        changed_at[0] = number + 1
        table.note_changes(number + 1, changed_at)
        assert table.counts(slots) == {}
        table.put(0, Refusal("n0", Reason.TAINT, best=1 << 70, phrase=f"taint {number}"))
        assert table.counts(slots) == {f"taint {number}": 1}
        assert len(table._kinds) <= MOST_KINDS + 1


class Story:
    """A world whose pods are asked for again and again."""

    def __init__(self, config: CycleConfig, asked: Any) -> None:
        self.world, self.serial, self.uids = World(config), 0, list[str]()
        self.pods = [self._pod(parts) for parts in asked]

    def _pod(self, parts: Any) -> Pod:
        self.serial += 1
        named = [container(f"c{at}", amounts(*part)) for at, part in enumerate(parts)]
        return guaranteed(f"p{self.serial}", *named)

    def node(self, name: str, node: Any) -> None:
        zones, policy, scope, taints, cpus = node
        self.serial += 1
        self.world.observe(
            name,
            labels={"kubernetes.io/hostname": name},
            allocatable={**amounts(cpus * 3, 90, 4), "pods": 1 + cpus},
            taints=tuple(Taint(f"t{at}", "", "NoSchedule") for at in range(taints - 1)),
        )
        seen = [zone(2 * at if cpus == 9 else at, amounts(*free), WHOLE) for at, free in
                enumerate(zones)]  # fmt: skip
        self.world.report(report(name, seen, policy, scope, time_ms=self.serial))

    def bound(self, name: str, parts: Any) -> None:
        pod = self._pod(parts)
        self.uids.append(pod.uid)
        self.world.bound(pod, name)

    def assumed(self, name: str, parts: Any) -> None:
        if self.world.cluster.node(name) is not None:
            self.world.cluster.assume(Placed(name, 0, 0, 0), self._pod(parts))

    def ended(self, _name: str) -> None:
        if self.uids:
            uid = self.uids.pop()
            node = self.world.ledger.pods[uid].node
            self.world.fold(f"pod/{uid}", PodEnded(uid, "deleted", node))

    def removed(self, name: str) -> None:
        if name in self.world.ledger.nodes:
            self.world.fold(f"node/{name}", NodeEnded(name, name, "deleted"))

    def asked(self, how: str) -> None:
        for pod in self.pods:
            if how == "apart":
                term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}}
                pod = constrained(pod, {"affinity": {"podAntiAffinity": {REQUIRED: [term]}}})
            self._asked(pod)

    def _asked(self, pod: Pod) -> None:
        cluster = self.world.cluster
        if cluster.select(pod) is not None:
            return
        pod_class, slots = cluster.evaluator.pod_class(pod), cluster.slots_by_name()
        refusals, plain = (
            explain._Refusals(cluster, each, cluster.checks(pod))
            for each in (pod_class, PodClass(pod_class.key, pod_class.pod, pod_class.row))
        )
        table, expected = refusals.table(), self._plainly(plain, slots)
        groups = Counter(map(headline, expected))
        assert table.counts(slots) == groups
        assert table.may_help(slots) == sum(each.reason in EVICTION_MAY_HELP for each in expected)
        near = cluster.config.near_misses
        nearest = [refusals.of(slot) for slot in table.nearest(slots, near)]
        assert nearest == sorted(expected, key=distance)[:near]
        for phrase in groups:
            zonal = [
                each for each in expected if headline(each) == phrase and each.best_zone is not None
            ]
            best = min(zonal, key=lambda each: (-each.best, each.node), default=None)
            entry = table.best(slots, phrase)
            assert (best is None) == (entry is None)
            if best is not None and entry is not None:
                node = cluster.evaluator.node_at(entry.slot).name
                text = best_zone(entry.resource, entry.amount, node, entry.zone)
                assert text == best_zone(best.resource, best.best, best.node, best.best_zone or 0)

    @staticmethod
    def _plainly(refusals: explain._Refusals, slots: Slots) -> list[Refusal]:
        """Return the refusals by name, from the class's nodes one after the other."""
        refusals._refused_by_class()
        refusals._plain_table()
        by_slot = [refusals._own[slot] for slot in slots.tolist()]
        return [refusal for refusal in by_slot if refusal is not None]


def distance(refusal: Refusal) -> tuple[float, float, str]:
    """Return the order of near misses, as the explanations define it."""
    order: dict[str, float] = {reason: place for place, reason in enumerate(Reason)}
    shortfall = 1 - refusal.best / refusal.asked if refusal.asked else 0.0
    return -order.get(refusal.reason, order[Reason.NODE_RESOURCE] - 0.5), shortfall, refusal.node
