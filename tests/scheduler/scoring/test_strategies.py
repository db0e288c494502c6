"""Every strategy against a fixed table, and what each must do at its edges."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.scheduler.score import strategies as scoring
from services.scheduler.score.strategies.keep_room import KeepRoom
from services.scheduler.score.strategies.koordinator import LABEL, strategy_for
from services.scheduler.score.strategies.least_numa_nodes import score_containers
from services.scheduler.score.strategies.registry import STRATEGIES
from services.scheduler.score.strategies.strategy import DemandClass, ZoneView
from shared.domain.pod import Container, ContainerKind
from shared.domain.resources import Amounts

GI = 2**30


def zone(
    zone_id: int, free: tuple[int, int], of: tuple[int, int] = (8000, 16 * GI), **devices: int
) -> ZoneView:
    """A zone with cpu and memory, free of allocatable, and `gpu` free of 4."""
    available: Amounts = {"cpu": free[0], "memory": free[1]}
    allocatable: Amounts = {"cpu": of[0], "memory": of[1]}
    for name, count in devices.items():
        available[f"vendor.example/{name}"], allocatable[f"vendor.example/{name}"] = count, 4
    return ZoneView(zone_id, available, allocatable, used=available != allocatable)


EMPTY = [zone(0, (8000, 16 * GI)), zone(1, (8000, 16 * GI))]
HALF = [zone(0, (4000, 8 * GI)), zone(1, (8000, 16 * GI))]
FULL = [zone(0, (0, 0)), zone(1, (1000, 0))]
FOUR = [
    zone(0, (0, 0)),
    zone(1, (8000, 16 * GI)),
    zone(2, (8000, 16 * GI)),
    zone(3, (8000, 16 * GI)),
]
SPARSE = [zone(7, (8000, 16 * GI)), zone(63, (4000, 8 * GI))]
ASK: Amounts = {"cpu": 2000, "memory": 4 * GI}
SKEWED: Amounts = {"cpu": 6000, "memory": 4 * GI}

TABLE: list[tuple[str, Amounts, list[ZoneView], int]] = [
    ("LeastAllocated", ASK, EMPTY, 75),
    ("LeastAllocated", ASK, HALF, 75),
    ("LeastAllocated", ASK, FULL, 0),
    ("LeastAllocated", ASK, SPARSE, 75),
    ("LeastAllocated", {"cpu": 8000, "memory": 16 * GI}, EMPTY, 0),
    ("LeastAllocated", {}, EMPTY, 100),
    ("LeastAllocated", {}, [], 0),
    ("MostAllocated", ASK, EMPTY, 25),
    ("MostAllocated", ASK, HALF, 25),
    ("MostAllocated", {"cpu": 5000, "memory": 10 * GI}, HALF, 62),
    ("MostAllocated", ASK, FULL, 0),
    ("MostAllocated", ASK, SPARSE, 25),
    ("BestFit", ASK, EMPTY, 59),
    ("BestFit", ASK, HALF, 87),
    ("BestFit", ASK, FULL, 0),
    ("BestFit", ASK, SPARSE, 59),
    ("BestFit", ASK, [zone(0, (4000, 8 * GI), gpu=3), zone(1, (8000, 16 * GI))], 72),
    ("BestFit", {**ASK, "vendor.example/gpu": 2}, [zone(0, (4000, 8 * GI), gpu=3, nic=1)], 77),
    ("BestFit", {"cpu": 4000, "memory": 8 * GI}, HALF, 100),
    ("BestFit", {}, EMPTY, 100),
    ("BestFit", {}, [], 0),
    ("BalancedAllocation", ASK, EMPTY, 100),
    ("KeepRoom", ASK, EMPTY, 88),
    ("KeepRoom", ASK, HALF, 96),
    ("KeepRoom", ASK, FULL, 0),
    ("KeepRoom", {"cpu": 4000, "memory": 8 * GI}, HALF, 100),
    ("KeepRoom", {}, EMPTY, 100),
    ("KeepRoom", {}, [], 0),
    ("BalancedAllocation", SKEWED, EMPTY, 75),
    ("BalancedAllocation", {"cpu": 3000}, EMPTY, 100),
    ("BalancedAllocation", ASK, FULL, 0),
    ("BalancedAllocation", SKEWED, SPARSE, 75),
    ("LeastNUMANodes", ASK, EMPTY, 93),
    ("LeastNUMANodes", {"cpu": 12000, "memory": 4 * GI}, EMPTY, 81),
    ("LeastNUMANodes", {"cpu": 17000}, EMPTY, 0),
    ("LeastNUMANodes", ASK, SPARSE, 93),
    ("LeastNUMANodes", {"ephemeral-storage": GI}, EMPTY, 100),
    ("KoordinatorMostAllocated", ASK, FOUR, 50),
    ("KoordinatorMostAllocated", ASK, EMPTY, 50),
    ("KoordinatorMostAllocated", ASK, HALF, 50),
    ("KoordinatorMostAllocated", ASK, FULL, 0),
    ("KoordinatorLeastAllocated", ASK, FOUR, 50),
    ("KoordinatorLeastAllocated", ASK, [*FOUR[1:], zone(4, (8000, 16 * GI))], 75),
    ("KoordinatorLeastAllocated", ASK, FULL, 0),
]


@pytest.mark.parametrize(("name", "request_amounts", "zones", "score"), TABLE)
def test_the_table(name: str, request_amounts: Amounts, zones: list[ZoneView], score: int) -> None:
    assert STRATEGIES[name].score(request_amounts, zones, {}, {}, 8) == score


def test_the_table_speaks_of_every_registered_strategy() -> None:
    assert {row[0] for row in TABLE} == set(STRATEGIES)


def test_a_strategy_file_that_was_not_registered_is_noticed() -> None:
    folder = Path(scoring.__file__).parent
    with_a_score = {
        path.stem for path in folder.glob("*.py") if "    combine: Literal" in path.read_text()
    }
    assert with_a_score == {type(each).__module__.rsplit(".", 1)[1] for each in STRATEGIES.values()}


def test_weights_count_only_for_requested_resources_and_at_least_one() -> None:
    uneven = [zone(0, (8000, 4 * GI))]
    score = STRATEGIES["LeastAllocated"].score
    assert score(ASK, uneven, {}, {"cpu": 3}, 8) == (75 * 3 + 0) // 4
    assert (
        score(ASK, uneven, {}, {"cpu": 0, "memory": -5, "vendor.example/gpu": 9}, 8)
        == (75 + 0) // 2
    )


def test_the_order_of_zones_does_not_matter() -> None:
    for name, request, zones, expected in TABLE:
        assert STRATEGIES[name].score(request, list(reversed(zones)), {}, {}, 8) == expected


GPU = "vendor.example/gpu"
WHOLE_ZONE = DemandClass((("cpu", 8000), (GPU, 4)), 4096)


def test_keep_room_spares_the_zone_that_still_holds_resources_in_demand() -> None:
    whole, begun, without = (
        [zone(0, (cpu, 16 * GI), gpu=gpus)] for cpu, gpus in ((8000, 4), (6000, 3), (8000, 0))
    )
    keep = KeepRoom().given([WHOLE_ZONE])
    scores = [keep.score({"cpu": 2000}, each, {}, {}, 8) for each in (whole, begun, without)]
    assert scores[0] < scores[1] < scores[2]
    assert keep.score({"cpu": 2000, GPU: 1}, whole, {}, {}, 8) < keep.score(
        {"cpu": 2000, GPU: 1}, begun, {}, {}, 8
    )


def test_keep_room_loses_nothing_in_zones_that_could_never_hold_it() -> None:
    small = [zone(0, (4000, 8 * GI), of=(4000, 8 * GI), gpu=4)]
    assert KeepRoom([WHOLE_ZONE]).score(ASK, small, {}, {}, 8) == KeepRoom().score(
        ASK, small, {}, {}, 8
    )


def test_keep_room_weighs_a_place_by_its_demand_class() -> None:
    """One node would lose room for a scarce demand class, the other for an abundant one."""
    scarce, plenty = DemandClass((("cpu", 8000),), 4096), DemandClass((("memory", 16 * GI),), 1)
    cpu_whole, memory_whole = [zone(0, (8000, 8 * GI))], [zone(0, (4000, 16 * GI))]
    for wants, better in (
        ((scarce, plenty), memory_whole),
        ((DemandClass(scarce.amounts, 1), DemandClass(plenty.amounts, 4096)), cpu_whole),
    ):
        keep = KeepRoom(wants)
        other_class = cpu_whole if better is memory_whole else memory_whole
        assert keep.score(ASK, better, {}, {}, 8) > keep.score(ASK, other_class, {}, {}, 8)


def test_a_nearer_set_scores_half_a_step_more() -> None:
    zones = [zone(0, (4000, GI)), zone(1, (1000, GI)), zone(2, (4000, GI))]
    near = {
        (a, b): 10 if a == b else 12 if {a, b} == {0, 1} else 40 for a in range(3) for b in range(3)
    }
    score = STRATEGIES["LeastNUMANodes"].score
    assert score({"cpu": 5000}, zones, near, {}, 8) == 81
    assert score({"cpu": 8000}, zones, near, {}, 8) == 75


@pytest.mark.parametrize("limit", [-1, 0, 1, 8, 64, 200, 1024])
def test_any_zone_limit_gives_a_score_within_bounds(limit: int) -> None:
    first, two = ({"cpu": amount} for amount in (2000, 12000))
    least = STRATEGIES["LeastNUMANodes"]
    alone, both = (least.score(request, EMPTY, {}, {}, limit) for request in (first, two))
    assert 0 <= both < alone <= 100


def test_sixty_four_zones_are_answered_quickly_and_within_bounds() -> None:
    zones = [zone(at, (1000, GI)) for at in range(64)]
    assert 0 <= STRATEGIES["LeastNUMANodes"].score({"cpu": 33_000}, zones, {}, {}, 64) <= 100


def demand(kind: ContainerKind, cpu: int) -> Container:
    return Container(kind, kind, {"cpu": cpu})


def scored(name: str, *containers: Container) -> int:
    return score_containers(STRATEGIES[name], containers, EMPTY, {}, {}, 8)


def test_an_init_container_takes_nothing_from_the_app_containers() -> None:
    assert (
        scored("LeastNUMANodes", demand("init", 8000), demand("app", 8000), demand("app", 8000))
        == 93
    )


def test_a_sidecar_takes_its_share_from_the_app_containers() -> None:
    assert scored("LeastNUMANodes", demand("sidecar", 6000), demand("app", 10_000)) == 81
    assert scored("LeastNUMANodes", demand("sidecar", 7000), demand("app", 10_000)) == 0


def test_the_container_that_needs_most_zones_decides() -> None:
    assert scored("LeastNUMANodes", demand("app", 4000), demand("app", 10_000)) == 81


def test_containers_that_ask_nothing_of_zones_are_left_out() -> None:
    assert scored("LeastNUMANodes", demand("app", 0), demand("app", 4000)) == 93
    assert scored("LeastNUMANodes", demand("app", 0)) == 100


@pytest.mark.parametrize(
    ("labels", "configured", "strategy"),
    [
        ({}, "KoordinatorLeastAllocated", "KoordinatorLeastAllocated"),
        ({LABEL: "LeastAllocated"}, "KoordinatorMostAllocated", "KoordinatorLeastAllocated"),
        ({LABEL: "MostAllocated"}, "KoordinatorLeastAllocated", "KoordinatorMostAllocated"),
        ({LABEL: "LeastAllocated"}, "BalancedAllocation", "BalancedAllocation"),
    ],
)
def test_the_node_label_chooses_between_the_koordinator_strategies(
    labels: dict[str, str], configured: str, strategy: str
) -> None:
    assert strategy_for(labels, configured) == strategy_for({}, strategy)


@pytest.mark.parametrize("value", ["DistributeEvenly", "mostallocated", "x"])
def test_an_unknown_strategy_label_is_named_and_the_configured_strategy_serves(
    value: str,
) -> None:
    choice = strategy_for({LABEL: value})
    assert choice.strategy == "KoordinatorMostAllocated"
    assert value in choice.problem
    assert "LeastAllocated" in choice.problem
