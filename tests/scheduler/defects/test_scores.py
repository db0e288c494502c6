"""Defects of the scores: what the plugin computes, and what the default strategies make of the same
node.
"""

from __future__ import annotations

from typing import Any

import pytest

from plugins.upstream_compat.cache import View
from plugins.upstream_compat.nrt import Nrt
from plugins.upstream_compat.pod import Pod
from plugins.upstream_compat.score import score_node
from plugins.upstream_compat.zones import numa_zones
from services.scheduler.score.strategies.least_numa_nodes import score_containers
from services.scheduler.score.strategies.registry import STRATEGIES
from services.scheduler.score.strategies.strategy import ZoneView
from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.result import Placed, Unplaceable
from shared.domain.pod import Container
from shared.domain.pod import Pod as OurPod
from shared.domain.report import Zone
from shared.domain.resources import Amounts
from tests.scheduler.compat import build
from tests.scheduler.compat.build import container, guaranteed, nrt, pod, two_zones, zone
from tests.scheduler.cycle_worlds import World, amounts
from tests.scheduler.cycle_worlds import container as our_container
from tests.scheduler.cycle_worlds import guaranteed as our_guaranteed
from tests.scheduler.cycle_worlds import zone as numa

GI = 2**30
GPU = "vendor.example/gpu"
BOTH: dict[str, Any] = {"cpu": "4", "memory": "1Gi"}


def upstream(strategy: str, tested: Pod, node: Nrt, **weights: int) -> int:
    """The plugin's score."""
    return score_node(tested, View(node), strategy, weights)


def ours(strategy: str, request: Amounts, *zones: ZoneView) -> int:
    """The default score of one request on a node with the usual limit of 8 zones."""
    return STRATEGIES[strategy].score(request, zones, {}, {}, 8)


WHOLE = amounts(8, 16)


def default_pod(*asked: Amounts) -> OurPod:
    """Return a Guaranteed pod with one container for each request."""
    return our_guaranteed("p", *(our_container(f"c{at}", held) for at, held in enumerate(asked)))


def placed_score(strategy: str, pod: OurPod, *zones: Zone, policy: str = "single-numa-node") -> int:
    """The score with which the cycle places the pod on a node of these zones."""
    made = World(CycleConfig(strategy=strategy))
    made.node("n", *zones, policy=policy)
    placed = made.cluster.place(pod)
    assert isinstance(placed, Placed), placed
    return placed.score


def free(
    zone_id: int,
    cpu: int = 8000,
    memory: int = 16 * GI,
    of: Amounts | None = None,
    gpu: int | None = None,
) -> ZoneView:
    """A zone; allocatable is `of` if given, else the available amount."""
    available = {"cpu": cpu, "memory": memory, **({} if gpu is None else {GPU: gpu})}
    return ZoneView(zone_id, available, {**available, **(of or {})})


def level_guaranteed(*containers: dict[str, Any]) -> Pod:
    """Guaranteed by pod-level resources, whatever its containers ask."""
    return pod("p", *containers, resources={"limits": BOTH, "requests": BOTH})


class TestRoundingUpToWholeUnits:
    """Quantities are rounded up to whole units before dividing, so that a cpu request of 1100m
    scores like 2.
    """

    def test_upstream_cannot_distinguish_fractions_of_a_cpu(self) -> None:
        node = nrt(*two_zones())
        scores = {
            upstream("LeastAllocated", guaranteed(cpu=cpu), node) for cpu in ("1100m", "1500m", "2")
        }
        assert len(scores) == 1

    def test_default_scores_in_millicpu(self) -> None:
        scores = [ours("LeastAllocated", {"cpu": cpu}, free(0)) for cpu in (1100, 1500, 2000)]
        assert scores == [86, 81, 75]


class TestDilution:
    """Every requested resource weighs, even if the zone does not list it: then it contributes 0. So
    ephemeral storage or a device of the host pulls LeastAllocated and MostAllocated towards 0 on
    every node alike.
    """

    def test_upstream_scores_lower_for_asking_ephemeral_storage(self) -> None:
        node = nrt(*two_zones())
        with_disk = pod("p", container(ephemeral_storage="1Gi", **BOTH))
        for strategy in ("LeastAllocated", "MostAllocated"):
            assert 0 < upstream(strategy, with_disk, node) < upstream(strategy, guaranteed(), node)

    def test_default_leaves_out_what_no_zone_lists(self) -> None:
        request = {"cpu": 4000, "memory": GI}
        for strategy in ("LeastAllocated", "MostAllocated", "BalancedAllocation"):
            with_disk = {**request, "ephemeral-storage": GI, GPU: 1}
            assert ours(strategy, with_disk, free(0)) == ours(strategy, request, free(0)) > 0


class TestDivisionByZero:
    """A container without requests has no weights to divide by: Least and MostAllocated panic. The
    reproduction leaves it out."""

    @pytest.mark.parametrize("strategy", ["LeastAllocated", "MostAllocated"])
    def test_neither_mode_fails_on_a_container_that_asks_for_nothing(self, strategy: str) -> None:
        assert upstream(strategy, level_guaranteed({"name": "idle"}), nrt(*two_zones())) == 100
        assert 0 <= placed_score(strategy, default_pod({}), numa(0, WHOLE)) <= 100
        busy, with_idle = default_pod(amounts(4, 8)), default_pod(amounts(4, 8), {})
        assert placed_score(strategy, with_idle, numa(0, WHOLE)) == placed_score(
            strategy, busy, numa(0, WHOLE)
        )


class TestVarianceOfOneResource:
    """The unbiased variance of a single fraction is 0/0; as an integer that is about -9.2e18, which
    the framework refuses."""

    def test_neither_mode_leaves_the_range_of_scores(self) -> None:
        single = level_guaranteed(container(cpu="4"))
        assert upstream("BalancedAllocation", single, nrt(*two_zones())) == 100
        assert ours("BalancedAllocation", {"cpu": 4000}, free(0)) == 100


class TestMissingCountsAsFull:
    """A zone that lacks a resource has fraction 1 in BalancedAllocation: a nearly full zone without
    the device looks balanced."""

    def test_upstream_prefers_a_full_zone_that_lacks_the_device(self) -> None:
        wants = pod("p", container(DEVICE="1", **BOTH))
        lacks = nrt(zone(0, cpu="4", memory="1Gi"))
        has = nrt(zone(0, cpu="4", memory="1Gi", DEVICE="4"))
        assert upstream("BalancedAllocation", wants, lacks) > upstream(
            "BalancedAllocation", wants, has
        )

    def test_default_scores_only_zones_that_can_hold_the_pod(self) -> None:
        wants = {"cpu": 4000, "memory": GI, GPU: 1}
        lacks, has = free(0), free(1, gpu=4)
        assert ours("BalancedAllocation", wants, lacks, has) == ours(
            "BalancedAllocation", wants, has
        )


class TestZeroMeansDoesNotFit:
    """The node takes its smallest zone score above zero. LeastAllocated scores a zone that the pod
    would fill exactly 0, which is then skipped as if it did not fit: the tightest node gets the
    score of its roomiest zone."""

    def test_upstream_ignores_the_zone_that_would_be_full(self) -> None:
        tight = nrt(zone(0, cpu="4", memory="1Gi"), zone(1, cpu="8", memory="16Gi"))
        roomy = nrt(zone(0, cpu="5", memory="2Gi"), zone(1, cpu="8", memory="16Gi"))
        assert upstream("LeastAllocated", guaranteed(), tight) > upstream(
            "LeastAllocated", guaranteed(), roomy
        )

    def test_ours_takes_the_best_zone_so_that_a_full_one_counts_nowhere_and_zero_is_a_score(
        self,
    ) -> None:
        request = {"cpu": 4000, "memory": GI}
        tight, roomy = (
            ours("LeastAllocated", request, free(0, 4000, GI), free(1)),
            free(0, 5000, 2 * GI),
        )
        assert (
            tight
            == ours("LeastAllocated", request, roomy, free(1))
            == ours("LeastAllocated", request, free(1))
            > 0
        )
        alone = World(CycleConfig(strategy="LeastAllocated"))
        alone.node("n", numa(0, amounts(4, 1)))
        placed = alone.cluster.place(default_pod(amounts(4, 1)))
        assert isinstance(placed, Placed)
        assert placed.score == ours("LeastAllocated", request, free(0, 4000, GI)) == 0


class TestCapacityIsWhatIsLeft:
    """Shares are of the zone's available amount, not of its size. On two zones with the same 4 CPUs
    left a pod of 4 "fills" both to the full, though one is a quarter of an emptier machine."""

    def test_upstream_cannot_distinguish_a_busy_zone_from_a_small_one(self) -> None:
        small, busy = zone(0, cpu="4", memory="4Gi"), zone(0, cpu="4", memory="4Gi")
        for resource in busy["resources"]:
            resource["allocatable"] = resource["capacity"] = (
                "64" if resource["name"] == "cpu" else "64Gi"
            )
        for strategy in ("LeastAllocated", "MostAllocated"):
            assert upstream(strategy, guaranteed(cpu="2"), nrt(small)) == upstream(
                strategy, guaranteed(cpu="2"), nrt(busy)
            )

    def test_default_takes_shares_of_the_allocatable_amount(self) -> None:
        small, busy = (
            free(0, 4000, 4 * GI),
            free(0, 4000, 4 * GI, of={"cpu": 64_000, "memory": 64 * GI}),
        )
        request = {"cpu": 2000, "memory": GI}
        assert ours("LeastAllocated", request, small) > ours("LeastAllocated", request, busy)
        assert ours("MostAllocated", request, small) < ours("MostAllocated", request, busy)


class TestSparseZoneIds:
    """Scores are kept in a list as long as the zones and indexed by zone id: zones 0 and 2, or a
    skipped one, panic. The reproduction goes by position."""

    @pytest.mark.parametrize(
        "strategy", ["LeastAllocated", "MostAllocated", "BalancedAllocation", "LeastNUMANodes"]
    )
    def test_neither_mode_fails_on_sparse_ids(self, strategy: str) -> None:
        sparse = nrt(zone(0, cpu="8", memory="16Gi"), zone(2, cpu="8", memory="16Gi"))
        assert upstream(strategy, guaranteed(), sparse) == upstream(
            strategy, guaranteed(), nrt(*two_zones())
        )
        request = {"cpu": 4000, "memory": GI}
        assert ours(strategy, request, free(0), free(2)) == ours(
            strategy, request, free(0), free(1)
        )


class TestContainersDoNotShare:
    """Under container scope each container is scored on untouched zones: two containers of 6 CPUs
    score as if each had the node, and a container that fits nowhere only lowers the mean.
    """

    def test_upstream_scores_containers_that_cannot_be_there_together(self) -> None:
        node = nrt(zone(0, cpu="8", memory="16Gi"))
        twice = pod("p", container(cpu="6", memory="1Gi"), container("c1", cpu="6", memory="1Gi"))
        assert (
            upstream("LeastAllocated", twice, node)
            == upstream("LeastAllocated", guaranteed(cpu="6"), node)
            > 0
        )
        never = pod("p", container(cpu="6", memory="1Gi"), container("c1", cpu="60", memory="1Gi"))
        assert upstream("MostAllocated", never, node) > 0

    @pytest.mark.parametrize("strategy", sorted(STRATEGIES))
    def test_default_scores_no_node_where_containers_cannot_be_together(
        self, strategy: str
    ) -> None:
        node = World(CycleConfig(strategy=strategy))
        node.node("n", numa(0, WHOLE))
        for together in ((amounts(6, 1), amounts(6, 1)), (amounts(6, 1), amounts(60, 1))):
            assert isinstance(node.cluster.place(default_pod(*together)), Unplaceable)

    @pytest.mark.parametrize("strategy", ["LeastAllocated", "MostAllocated", "BalancedAllocation"])
    def test_default_ranks_nodes_by_each_container_on_untouched_zones_all_the_same(
        self, strategy: str
    ) -> None:
        """Kept on purpose, behind the filter: "Scores of several containers" in the README of
        plugins/upstream_compat.
        """
        zones = numa(0, WHOLE), numa(1, WHOLE)
        alone = [
            placed_score(strategy, default_pod(each), *zones)
            for each in (amounts(6, 1), amounts(2, 8))
        ]
        assert (
            placed_score(strategy, default_pod(amounts(6, 1), amounts(2, 8)), *zones)
            == sum(alone) // 2
        )

    def test_default_lets_them_share_where_sets_of_zones_are_compared(self) -> None:
        """After two containers of 6 CPUs no zone has 4 left, so that the third needs both zones."""
        zones, six, four = (numa(0, WHOLE), numa(1, WHOLE)), amounts(6), amounts(4)
        assert placed_score("LeastNUMANodes", default_pod(four), *zones, policy="best-effort") == 93
        assert (
            placed_score(
                "LeastNUMANodes", default_pod(six, six, four), *zones, policy="best-effort"
            )
            == 81
        )


class TestEveryZoneMustNameEveryResource:
    """LeastNUMANodes takes a set only if each of its zones lists each requested resource, zero
    quantities and host-level ones included: ephemeral storage makes every node score 0, and a GPU
    on one zone cannot be had with CPUs of two."""

    def test_upstream_scores_zero_everywhere_for_ephemeral_storage(self) -> None:
        with_disk = pod("p", container(ephemeral_storage="1Gi", **BOTH))
        assert upstream("LeastNUMANodes", with_disk, nrt(*two_zones())) == 0

    def test_upstream_scores_zero_for_a_zero_quantity_that_a_zone_does_not_list(self) -> None:
        with_none = pod("p", container(DEVICE="0", **BOTH))
        assert upstream("LeastNUMANodes", with_none, nrt(*two_zones())) == 0

    def test_upstream_has_no_set_for_a_device_on_one_zone_and_cpus_of_two(self) -> None:
        node = nrt(
            zone(0, cpu="8", memory="16Gi", DEVICE="4"),
            zone(1, cpu="8", memory="16Gi"),
            policy="restricted",
        )
        wide = pod("p", container(cpu="12", memory="1Gi", DEVICE="1"))
        assert upstream("LeastNUMANodes", wide, node) == 0

    def test_default_needs_the_amounts_in_sum_of_what_zones_list(self) -> None:
        one_gpu = (free(0, gpu=4), free(1))
        request = {"cpu": 4000, "memory": GI, "ephemeral-storage": GI, "vendor.example/other": 0}
        assert ours("LeastNUMANodes", request, *one_gpu) == 93
        assert ours("LeastNUMANodes", {"cpu": 12_000, "memory": GI, GPU: 1}, *one_gpu) == 81


class TestStepOfZero:
    """The step is 100 divided by the zone limit, truncated. Above 100 zones it is 0 and every
    fitting node scores 100; with more zones than the limit the score is negative, and the framework
    fails the whole cycle (the reproduction gives 0)."""

    def test_upstream_cannot_distinguish_one_zone_from_two_under_a_high_limit(self) -> None:
        node = nrt(*two_zones(), policy="restricted", topologyManagerMaxNUMANodes="200")
        assert {upstream("LeastNUMANodes", guaranteed(cpu=cpu), node) for cpu in ("4", "12")} == {
            100
        }

    @pytest.mark.parametrize("limit", [2, 8, 64, 200, 1024])
    def test_default_ranks_fewer_zones_higher_under_any_limit(self, limit: int) -> None:
        score = STRATEGIES["LeastNUMANodes"].score
        first, two = (
            score({"cpu": cpu}, [free(0), free(1)], {}, {}, limit) for cpu in (4000, 12_000)
        )
        assert 0 <= two < first <= 100


class TestChargingByIdAsPosition:
    """After each container the chosen zones are charged by using their ids as positions in the
    list: with reordered zones the wrong zone pays, and with sparse ids the scorer panics (the
    reproduction then charges the chosen zones)."""

    def test_upstream_charges_the_wrong_zone_when_zones_are_reordered(self) -> None:
        twice = pod("p", container(cpu="8", memory="1Gi"), container("c1", cpu="8", memory="1Gi"))
        big, small = zone(1, cpu="8", memory="16Gi"), zone(0, cpu="2", memory="16Gi")
        reordered, in_order = (
            nrt(*zones, policy="restricted") for zones in ((big, small), (small, big))
        )
        assert upstream("LeastNUMANodes", twice, in_order) == 0
        assert upstream("LeastNUMANodes", twice, reordered) > 0

    def test_default_charges_the_zones_where_the_container_lands(self) -> None:
        parts = [Container(name, requests={"cpu": 8000}) for name in ("a", "b")]
        zones = [free(1), free(0, cpu=2000)]
        for order in (zones, zones[::-1]):
            assert score_containers(STRATEGIES["LeastNUMANodes"], parts, order, {}, {}, 8) == 0


class TestInitContainersAreCharged:
    """LeastNUMANodes keeps what init containers requested, although they end before the app
    containers start (Filter does not)."""

    def test_upstream_scores_zero_for_a_pod_whose_init_container_needs_the_zone_first(self) -> None:
        init, app = container("i", cpu="8", memory="1Gi"), container(cpu="8", memory="1Gi")
        node = nrt(zone(0, cpu="8", memory="16Gi"))
        assert upstream("LeastNUMANodes", pod("p", app, inits=(init,)), node) == 0

    def test_default_lets_app_containers_reuse_what_an_init_container_had(self) -> None:
        parts = [Container("i", "init", {"cpu": 8000}), Container("c", "app", {"cpu": 8000})]
        assert score_containers(STRATEGIES["LeastNUMANodes"], parts, [free(0)], {}, {}, 8) == 93


class TestOnlyGuaranteedPodsAreScored:
    """A pod that is not Guaranteed scores 100 on every node, although its devices are aligned by
    the kubelet too.
    """

    def test_upstream_has_no_opinion_on_a_burstable_pod_with_a_device(self) -> None:
        burstable = pod("p", container(equal=False, cpu="1", DEVICE="1"))
        full, empty = nrt(*two_zones(DEVICE="1")), nrt(*two_zones(DEVICE="8"))
        assert (
            upstream("LeastAllocated", burstable, full)
            == upstream("LeastAllocated", burstable, empty)
            == 100
        )

    def test_default_scores_the_devices_of_any_class(self) -> None:
        assert ours("LeastAllocated", {GPU: 1}, free(0, gpu=1)) == 0
        assert ours("LeastAllocated", {GPU: 1}, free(0, gpu=8)) == 87


class TestExponentialSearch:
    """The original walks every combination of every size: 65,535 sets per container and node at 16
    zones, without end at 64. Both searches here are bounded."""

    def test_neither_mode_walks_for_ever(self) -> None:
        zones = [build.zone(at, cpu="1", memory="1Gi") for at in range(64)]
        node = nrt(*zones, policy="restricted", topologyManagerMaxNUMANodes="64")
        assert len(numa_zones(node)) == 64
        assert 0 <= upstream("LeastNUMANodes", guaranteed(cpu="33"), node) <= 100
        assert (
            0
            <= ours("LeastNUMANodes", {"cpu": 33_000}, *(free(at, cpu=1000) for at in range(64)))
            <= 100
        )
