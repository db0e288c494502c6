"""Objects that no exporter writes today and the plugin reads nevertheless: each answer is what its
code answered (upstream's pkg/noderesourcetopology at 903da7df was run on them)."""

from __future__ import annotations

import pytest

from plugins.upstream_compat.alignment import subtract
from plugins.upstream_compat.cache import View
from plugins.upstream_compat.exclusive import is_exclusive
from plugins.upstream_compat.filter import filter_node
from plugins.upstream_compat.fingerprint import is_relevant
from plugins.upstream_compat.node import offered
from plugins.upstream_compat.pod import Pod
from plugins.upstream_compat.score import score_node
from plugins.upstream_compat.zones import NumaZone, numa_zones, parse_zone_id
from shared.domain.atoi import atoi
from shared.domain.quantity import Quantity, parse
from tests.scheduler.compat.build import container, guaranteed, nrt, pod, zone


@pytest.mark.parametrize(
    ("name", "zone_id"),
    [
        ("node-0", 0),
        ("node--0", 0),
        ("node-+1", 1),
        ("node-000000000000000000000000003", 3),
        ("node--1", None),
        ("node-0-1", None),
        ("node-1_0", None),
        ("node-" + "9" * 30, None),
        ("numa-0", None),
        ("node-", None),
    ],
)
def test_zone_names_are_read_as_go_reads_numbers(name: str, zone_id: int | None) -> None:
    """`numanode.NameToID` passes the text after `node-` to strconv.Atoi, and refuses negative
    numbers.
    """
    assert parse_zone_id(name) == zone_id


@pytest.mark.parametrize(
    ("text", "number"),
    [("0" * 40 + "16", 16), ("-" + "0" * 40, 0), (str(2**63), None), ("9" * 5000, None)],
)
def test_zeros_before_a_number_are_without_limit(text: str, number: int | None) -> None:
    assert atoi(text) == number


def test_zones_that_share_an_id_have_the_costs_of_the_last_of_them() -> None:
    """`createNUMANodeList` finds a zone's costs by its id."""
    near, far = {0: 10, 1: 12}, {0: 200, 1: 210}
    doubled = nrt(
        zone(0, near, cpu="2", memory="2Gi"),
        zone(1, near, cpu="2", memory="2Gi"),
        zone(0, far, cpu="2", memory="2Gi"),
    )
    assert [each.costs for each in numa_zones(doubled)] == [far, near, far]


def test_doubled_zones_are_scored_by_those_costs() -> None:
    costs = [{0: 50, 1: 11}, {0: 11, 1: 10}, {0: 5, 1: 60}]
    zones = [
        zone(at, each, cpu="4", memory="4Gi") for at, each in zip((0, 1, 0), costs, strict=True)
    ]
    assert score_node(guaranteed(cpu="6"), View(nrt(*zones)), "LeastNUMANodes", {}) == 94


def test_an_unknown_qos_class_in_the_status_is_neither_guaranteed_nor_best_effort() -> None:
    """`GetPodQOS` believes whatever status.qosClass holds."""
    view = View(nrt(zone(0, cpu="1", memory="1Gi")))
    strange = Pod(
        "ns", "a", containers=guaranteed(cpu="4", memory="4Gi").containers, reported_qos="Odd"
    )
    assert filter_node(strange, offered(()), view).passes
    assert score_node(strange, View(None), "LeastAllocated", {}) == 100
    assert not is_exclusive(strange, ())


@pytest.mark.parametrize(
    ("cpu", "exclusive"),
    [("999999999n", True), ("1999999999n", True), ("1000000001n", False), ("1", True)],
)
def test_cpus_are_integral_after_rounding_to_thousandths(cpu: str, exclusive: bool) -> None:
    """`IsExclusive` compares `Value()*1000` with `MilliValue()`, and both round up."""
    asked = pod("a", container(cpu=cpu)).containers
    assert (
        is_exclusive(Pod("ns", "a", containers=asked, reported_qos="Guaranteed"), ()) is exclusive
    )


def test_a_running_pod_without_a_node_counts_for_the_shared_informer_only() -> None:
    running = pod("a", phase="Running")
    assert is_relevant(running, "Shared")
    assert not is_relevant(running, "Dedicated")


def test_a_zero_request_takes_nothing_even_where_less_than_nothing_is_left() -> None:
    """`subtractResourcesFromNUMANodeList` skips zero requests before it looks at available
    amounts.
    """
    short = NumaZone(0, {"cpu": parse("-1")}, {})
    assert subtract({"cpu": Quantity(0)}, "Guaranteed", [short], 0) is None
    assert subtract({"cpu": parse("1")}, "Guaranteed", [short], 0) is not None
