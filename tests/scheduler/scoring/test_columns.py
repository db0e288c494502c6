"""Columns and single nodes must score alike, for any request and any cluster within the stated
bounds.
"""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.scheduler.score.strategies.best_fit import BestFit
from services.scheduler.score.strategies.fit import fitting
from services.scheduler.score.strategies.keep_room import KeepRoom
from services.scheduler.score.strategies.registry import COLUMN_STRATEGIES, STRATEGIES
from services.scheduler.score.strategies.strategy import (
    COLUMN_LIMIT,
    Bools,
    Columns,
    DemandClass,
    Ints,
    LandingStrategy,
    PlainStrategy,
    ZoneView,
)
from shared.domain.resources import is_device, is_numa_affine
from tests.fixtures.examples import examples

RESOURCES = ("cpu", "memory", "hugepages-2Mi", "vendor.example/gpu", "ephemeral-storage")
DEVICES = np.array([is_device(name) for name in RESOURCES])


class Cluster(NamedTuple):
    """A request and columns for it."""

    request: Ints
    available: Ints
    allocatable: Ints
    present: Bools
    weights: Ints


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    count, zones, nodes = len(RESOURCES), draw(st.integers(1, 4)), draw(st.integers(1, 4))
    largest = draw(st.sampled_from((4, 100, 64_000, COLUMN_LIMIT)))
    shape = (count, zones, nodes)
    cells = count * zones * nodes

    def column(elements: st.SearchStrategy[int]) -> Ints:
        return np.array(
            draw(st.lists(elements, min_size=cells, max_size=cells)), dtype=np.int64
        ).reshape(shape)

    present = column(st.sampled_from((0, 1, 1, 1))).astype(np.bool_)
    allocatable = column(st.integers(1, largest)) * present
    amounts_free = column(st.one_of(st.just(0), st.integers(0, largest)))
    request = draw(
        st.lists(st.one_of(st.just(0), st.integers(0, largest)), min_size=count, max_size=count)
    )
    weights = draw(st.lists(st.integers(-1, 9), min_size=count, max_size=count))
    return Cluster(
        np.array(request),
        np.maximum(allocatable - amounts_free, 0),
        allocatable,
        present,
        np.array(weights),
    )


def node_zones(cluster: Cluster, node: int) -> list[ZoneView]:
    """Return one node's zones in scalar form; a zone without resources does not exist."""
    zones = []
    for zone in range(cluster.present.shape[1]):
        listed = [at for at in range(len(RESOURCES)) if cluster.present[at, zone, node]]
        available = {RESOURCES[at]: int(cluster.available[at, zone, node]) for at in listed}
        allocatable = {RESOURCES[at]: int(cluster.allocatable[at, zone, node]) for at in listed}
        if listed:
            zones.append(ZoneView(zone, available, allocatable, used=available != allocatable))
    return zones


def fits_of(cluster: Cluster) -> Bools:
    """Return as bool[zone, node] whether a zone holds the request alone, computed node by node."""
    _, zones, nodes = cluster.present.shape
    fits = np.zeros((zones, nodes), dtype=np.bool_)
    request = dict(zip(RESOURCES, map(int, cluster.request), strict=True))
    for node in range(nodes):
        fits[[zone.id for zone in fitting(request, node_zones(cluster, node))], node] = True
    return fits


@pytest.mark.parametrize("name", sorted(COLUMN_STRATEGIES))
@given(cluster=clusters(), as_floats=st.booleans())
@settings(max_examples=examples(40), deadline=None)
def test_columns_score_like_single_nodes(name: str, cluster: Cluster, as_floats: bool) -> None:
    strategy = COLUMN_STRATEGIES[name]
    request = dict(zip(RESOURCES, map(int, cluster.request), strict=True))
    weights = dict(zip(RESOURCES, map(int, cluster.weights), strict=True))
    fits = fits_of(cluster)
    available, allocatable = cluster.available, cluster.allocatable
    if as_floats:
        available, allocatable = available.astype(np.float64), allocatable.astype(np.float64)
    scores = strategy.score_nodes(
        Columns(
            cluster.request, available, allocatable, cluster.present, fits, cluster.weights, DEVICES
        )
    )
    alone = [
        strategy.score(request, node_zones(cluster, node), {}, weights, 8)
        for node in range(fits.shape[1])
    ]
    assert scores.dtype == np.int64
    assert scores.tolist() == alone
    assert all(0 <= score <= 100 for score in alone)


@st.composite
def wants(draw: st.DrawFn) -> list[DemandClass]:
    largest = draw(st.sampled_from((4, 100, 64_000, COLUMN_LIMIT)))
    asked = st.dictionaries(st.sampled_from(RESOURCES), st.integers(1, largest), min_size=1)
    made = draw(
        st.lists(st.tuples(asked, st.sampled_from([2**power for power in range(13)])), max_size=5)
    )
    return [DemandClass(tuple(sorted(amounts.items())), weight) for amounts, weight in made]


def plainly(request: dict[str, int], zones: list[ZoneView], wanted: list[DemandClass]) -> int:
    """Return KeepRoom's score by its definition: the lost places of each demand class in exact
    fractions, then the remaining share.
    """
    landing = fitting(request, zones)
    asked = {
        name: amount
        for name, amount in request.items()
        if amount and landing and name in landing[0].allocatable
    }
    if not asked:
        return 100 if landing else 0
    free, whole = landing[0].available, landing[0].allocatable
    remaining = {name: amount - asked.get(name, 0) for name, amount in free.items()}
    loss = sum(
        each.weight * (_places(each, free, whole) - _places(each, remaining, whole))
        for each in wanted
    )
    anywhere = sum(
        each.weight * 4096 * min([asked.get(name, 0) // amount for name, amount in each.amounts])
        for each in wanted
    )
    shares = sum(remaining[name] * 100 // whole[name] for name in asked)
    steps = max(0, loss - anywhere) // 1024 + shares * 16 // (100 * len(asked))
    score, least = 100, 1
    while steps >= least and score > 1:
        score, least = score - 1, least + max(1, least // 8)
    return score


def _places(want: DemandClass, free: dict[str, int], whole: dict[str, int]) -> int:
    if any(whole.get(name, 0) < amount for name, amount in want.amounts):
        return 0
    sixty_fourths = min(
        [1024 * 64, *(int(Fraction(free[name] * 64, amount)) for name, amount in want.amounts)]
    )
    return sixty_fourths // 64 * 4096 + (sixty_fourths % 64) ** 3 // 64


@given(cluster=clusters(), wanted=wants())
@settings(max_examples=examples(100), deadline=None)
def test_room_is_kept_alike_in_columns_in_plain_amounts_and_in_words(
    cluster: Cluster, wanted: list[DemandClass]
) -> None:
    keep = KeepRoom(wanted)
    request = dict(zip(RESOURCES, map(int, cluster.request), strict=True))
    for node in range(cluster.present.shape[2]):
        zones = node_zones(cluster, node)
        listed = {name for zone in zones for name in zone.allocatable}
        asked = {
            name: amount
            for name, amount in request.items()
            if amount and (name in listed or is_numa_affine(name))
        }
        free, sizes = (
            {zone.id: zone.available for zone in zones},
            {zone.id: zone.allocatable for zone in zones},
        )
        assert keep.score(request, zones, {}, {}, 8) == plainly(request, zones, wanted)
        assert keep.score_plain(tuple(asked.items()), free, sizes) == keep.score(
            asked, zones, {}, {}, 8
        )
        landing = fitting(asked, zones)
        items = tuple(
            (name, amount)
            for name, amount in asked.items()
            if landing and name in landing[0].allocatable
        )
        if items:
            assert landed(keep, cluster, items, landing[0].id, node) == plainly(
                dict(items), [landing[0]], wanted
            )


def test_a_zone_too_small_for_a_demand_class_loses_none_of_its_room() -> None:
    too_large, fitting = DemandClass((("cpu", 20),), 4096), DemandClass((("cpu", 16),), 4096)
    free, whole = np.array([[16, 16]]), np.array([[16.0, 32.0]])
    scores = {
        want: KeepRoom([want])
        .landed((("cpu", 4),), ("cpu",))
        .scores(free, whole, np.arange(2))
        .tolist()
        for want in (too_large, fitting)
    }
    zones = [ZoneView(0, {"cpu": 16}, {"cpu": size}) for size in (16, 32)]
    assert scores == {
        want: [plainly({"cpu": 4}, [zone], [want]) for zone in zones] for want in scores
    }
    assert scores[too_large][0] > scores[fitting][0]


@given(cluster=clusters())
@settings(max_examples=examples(50), deadline=None)
def test_best_fit_scores_the_zone_where_a_request_lands_like_the_node(cluster: Cluster) -> None:
    for node in range(cluster.present.shape[2]):
        for zone in node_zones(cluster, node):
            request = dict(zip(RESOURCES, map(int, cluster.request), strict=True))
            items = tuple(
                (name, amount)
                for name, amount in request.items()
                if amount and name in zone.allocatable
            )
            if items and fitting(dict(items), [zone]):
                assert landed(BestFit(), cluster, items, zone.id, node) == BestFit().score(
                    dict(items), [zone], {}, {}, 8
                )


def landed(
    strategy: LandingStrategy,
    cluster: Cluster,
    items: tuple[tuple[str, int], ...],
    zone: int,
    node: int,
) -> int:
    """Return the score of one zone by its position [zone * nodes + node]. It is computed twice, to
    compare.
    """
    rows = len(RESOURCES), -1
    available = cluster.available.reshape(rows)
    allocatable = cluster.allocatable.astype(np.float64).reshape(rows)
    positions = np.array([zone * cluster.present.shape[2] + node] * 2)
    scores = strategy.landed(items, RESOURCES).scores(available, allocatable, positions)
    first, second = scores.tolist()
    assert first == second
    return int(first)


@pytest.mark.parametrize(
    "name", sorted(name for name, each in STRATEGIES.items() if isinstance(each, PlainStrategy))
)
@given(cluster=clusters())
@settings(max_examples=examples(50), deadline=None)
def test_amounts_score_like_zones(name: str, cluster: Cluster) -> None:
    strategy = STRATEGIES[name]
    assert isinstance(strategy, PlainStrategy)
    for node in range(cluster.present.shape[2]):
        zones = node_zones(cluster, node)
        listed = {name for zone in zones for name in zone.allocatable}
        asked = zip(RESOURCES, map(int, cluster.request), strict=True)
        items = tuple(
            (name, amount)
            for name, amount in asked
            if amount and (name in listed or is_numa_affine(name))
        )
        free, sizes = (
            {zone.id: zone.available for zone in zones},
            {zone.id: zone.allocatable for zone in zones},
        )
        assert strategy.score_plain(items, free, sizes) == strategy.score(
            dict(items), zones, {}, {}, 8
        )


@pytest.mark.parametrize("name", sorted(COLUMN_STRATEGIES))
def test_a_cluster_without_zones_scores_zero_everywhere(name: str) -> None:
    empty = np.zeros((len(RESOURCES), 0, 3), dtype=np.int64)
    present, fits = empty.astype(np.bool_), np.zeros((0, 3), dtype=np.bool_)
    request = weights = np.ones(len(RESOURCES), dtype=np.int64)
    scores = COLUMN_STRATEGIES[name].score_nodes(
        Columns(request, empty, empty, present, fits, weights, DEVICES)
    )
    assert scores.tolist() == [0, 0, 0]
