"""Ranks of nodes whose zones Topolog chooses: the forms agree, and history does not matter."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.scheduler.explain.placing import ColumnarPlacing
from services.scheduler.score.ranks import RULED_OUT
from services.scheduler.score.runner import score_node
from services.scheduler.select.evaluate import evaluate_node
from services.scheduler.snapshot.owners import STRATEGY_LABEL
from services.scheduler.snapshot.result import Placed
from shared.domain.pod import Pod
from shared.domain.policies import Policy
from shared.events import streams
from shared.events.cluster_events import PodEnded
from shared.events.scheduling_events import Wanted
from tests.scheduler.owned.given import OwnedWorld, exclusive, share

# CPUs (in halves for a share), GiB, GPUs, whether it is a share.
kinds = st.tuples(st.integers(1, 9), st.sampled_from([1, 8, 30]), st.integers(0, 2), st.booleans())


def pod_of(name: str, kind: tuple[int, int, int, bool]) -> Pod:
    cpus, gib, gpus, is_share = kind
    return share(name, cpus * 500, gib) if is_share else exclusive(name, cpus, gib, gpus)


def cluster_of(world: OwnedWorld) -> ColumnarPlacing:
    cluster = world.core.cluster
    assert isinstance(cluster, ColumnarPlacing)
    return cluster


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(["single-numa-node", "single-numa-node", "restricted", "best-effort", "none"]),
    st.sampled_from(["KeepRoom", "KeepRoom", "LeastAllocated"]),
    st.sampled_from(["", "", "MostAllocated", "DistributeEvenly"]),
    st.lists(st.lists(kinds, min_size=1, max_size=4), min_size=1, max_size=5),
    st.sets(st.integers(0, 19)),
    st.lists(kinds, min_size=1, max_size=3),
)
def test_a_scheduler_with_a_history_ranks_as_a_new_one_and_node_by_node(
    policy: Policy,
    strategy: str,
    label: str,
    batches: list[list[tuple[int, int, int, bool]]],
    ended: set[int],
    asked: list[tuple[int, int, int, bool]],
) -> None:
    world, count = OwnedWorld(policy, strategy=strategy), 0
    labels = {STRATEGY_LABEL: label} if label else {}
    for number, zones in enumerate((2, 2, 4)):
        world.node(f"n{number}", zones, gpus=number, labels=labels if number else {})
    probes = [pod_of(f"probe{number}", kind) for number, kind in enumerate(asked)]
    for batch in batches:
        world.place(*[pod_of(f"p{count + at}", kind) for at, kind in enumerate(batch)])
        for serial in range(count, count + len(batch)):
            if serial in ended and f"uid-p{serial}" in world.core.ledger.pods:
                world.tell(streams.pod(f"uid-p{serial}"), PodEnded(f"uid-p{serial}", "succeeded"))
        count += len(batch)
        for probe in probes:
            _has_equal_forms(cluster_of(world), probe)
        world.turn()
    new = world.again()
    new.decide(0)
    for probe in probes:
        earlier, later = (core.cluster.select(probe) for core in (world.core, new))
        # Without the kernel, a node that was ranked singly may still count as a candidate.
        if isinstance(earlier, Placed) and isinstance(later, Placed):
            earlier = msgspec.structs.replace(earlier, candidates=later.candidates)
        assert earlier == later


def _has_equal_forms(cluster: ColumnarPlacing, pod: Pod) -> None:
    evaluator = cluster.evaluator
    pod_class = evaluator.pod_class(pod)
    evaluator.evaluate_all_if_new(pod_class)
    evaluator.rank_changed(pod_class)
    scores, sure = evaluator.cache.row(pod_class.row)
    bulk = evaluator._bulk
    every = np.arange(len(scores))
    parts = [(where, bulk.run(pod_class, part)) for where, part in bulk.parted(pod_class, every)]
    for where, (in_bulk, _) in parts:
        for slot, score in zip(every[where].tolist(), in_bulk.tolist(), strict=True):
            node_info = evaluator.node_at(slot)
            plan, _ = evaluator.plan(pod_class, node_info)
            plain = evaluate_node(
                pod_class, plan, node_info, cluster.config, evaluator.strategy, 1024
            )
            # Bounds rule out no node that takes the pod, and scores are exact or upper bounds.
            assert plain <= min(score, int(scores[slot]))
            if plan.one_zone is None or score == RULED_OUT:
                continue
            if not plan.counted_zones:
                assert score == score_node(node_info, pod_class, plan, evaluator.strategy)
                assert sure[slot] or scores[slot] == score
            best = evaluator.strategy.best_zone(node_info, plan)
            first = evaluator.first_zone(pod_class, plan, node_info)
            assert first is None or (best is not None and first == best[1])


@pytest.mark.parametrize(("label", "zone"), [("", 1), ("MostAllocated", 0), ("LeastAllocated", 1)])
def test_demand_chooses_the_zone_unless_the_node_has_a_label(label: str, zone: int) -> None:
    """Zone 0 has 7 CPUs left and zone 1 has 15. The room for a pod of 12 CPUs stays whole if a pod
    of 3 takes zone 1, although zone 0 is the fullest that holds it.
    """
    world = OwnedWorld()
    world.node(labels={STRATEGY_LABEL: label} if label else {})
    world.place(exclusive("first", 8))
    cluster = cluster_of(world)
    assert _zones_of(cluster, exclusive("p", 3)) == ([1] if label == "LeastAllocated" else [0])
    cluster.rank_by((Wanted({"cpu": 12_000, "memory": 1 << 30}, 4096, 1, 1, 1),))
    assert _zones_of(cluster, exclusive("p", 3)) == [zone]


def test_a_zone_is_spared_if_its_devices_would_come_from_another_one() -> None:
    """The pods of zone 0 hold as many GPUs as zone 0 has, whichever the kubelet gave them."""
    world = OwnedWorld()
    world.node(gpus=2)
    world.place(exclusive("first", 2, gpus=2))
    assert _zones_of(cluster_of(world), exclusive("p", 2, gpus=1)) == [1]
    assert _zones_of(cluster_of(world), exclusive("p", 2)) == [0]


def _zones_of(cluster: ColumnarPlacing, pod: Pod) -> list[int]:
    placed = cluster.select(pod)
    assert isinstance(placed, Placed)
    assert placed.allocation is not None
    return list(placed.allocation.zones)
