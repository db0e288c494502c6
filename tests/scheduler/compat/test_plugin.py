"""The plugin as one piece: caches in their roles, stated verdicts for inputs on which the original
crashes, and hostile objects.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plugins.upstream_compat.arguments import Arguments
from plugins.upstream_compat.cache import View
from plugins.upstream_compat.errors import InvalidObjectError
from plugins.upstream_compat.filter import Code, filter_node
from plugins.upstream_compat.foreign import Profiles
from plugins.upstream_compat.node import named_resources, offered
from plugins.upstream_compat.nrt import Nrt, from_report, parse_nrt
from plugins.upstream_compat.plugin import Plugin
from plugins.upstream_compat.pod import effective_request, from_domain, parse_pod, qos_class
from plugins.upstream_compat.score import ZONE_STRATEGIES, score_node
from shared.domain.pod import Container
from shared.domain.pod import Pod as DomainPod
from shared.domain.report import Report, Zone, ZoneResource
from tests.fixtures.examples import examples
from tests.scheduler.compat.build import container, guaranteed, nrt, pod, two_zones, zone

OFFERED = offered(["vendor.example/gpu"])


def plugin(arguments: Arguments, *nrts: Nrt) -> Plugin:
    return Plugin("topo", arguments, nrts, Profiles())


def nowhere(_: str) -> Nrt | None:
    return None


class TestDiscardReserved:
    def test_a_node_with_a_reservation_in_flight_is_closed_until_the_pod_is_bound(self) -> None:
        live = {"n1": nrt(*two_zones())}
        tested = plugin(Arguments(discard_reserved_nodes=True))
        first, second = guaranteed("a"), guaranteed("b")
        tested.reserve(first, "n1")
        verdict = tested.filter(second, "n1", OFFERED, live.get)
        assert (verdict.code, verdict.message, verdict.marks) == (
            Code.UNSCHEDULABLE,
            "invalid node topology data",
            False,
        )
        assert tested.score(second, "n1", live.get) == 0
        tested.post_bind(first, "n1")
        assert tested.filter(second, "n1", OFFERED, live.get).passes

    def test_an_unreserved_pod_opens_the_node_only_when_it_was_the_last(self) -> None:
        live = {"n1": nrt(*two_zones())}
        tested = plugin(Arguments(discard_reserved_nodes=True))
        first, second = guaranteed("a"), guaranteed("b")
        tested.reserve(first, "n1")
        tested.reserve(second, "n1")
        tested.unreserve(first, "n1")
        assert not tested.filter(guaranteed("c"), "n1", OFFERED, live.get).passes
        tested.unreserve(second, "n1")
        assert tested.filter(guaranteed("c"), "n1", OFFERED, live.get).passes

    def test_after_the_bind_the_old_report_is_believed_again(self) -> None:
        live = {"n1": nrt(*two_zones(cpu="4"))}
        tested = plugin(Arguments(discard_reserved_nodes=True))
        for name in ("a", "b", "c"):
            assert tested.filter(guaranteed(name), "n1", OFFERED, live.get).passes
            tested.reserve(guaranteed(name), "n1")
            tested.post_bind(guaranteed(name), "n1")


class TestPassthrough:
    def test_reservations_leave_no_trace(self) -> None:
        live = {"n1": nrt(*two_zones(cpu="4"))}
        tested = plugin(Arguments())
        for name in ("a", "b", "c"):
            tested.reserve(guaranteed(name), "n1")
        assert tested.filter(guaranteed("d"), "n1", OFFERED, live.get).passes

    def test_a_new_report_is_seen_at_once(self) -> None:
        tested = plugin(Arguments())
        assert not tested.filter(
            guaranteed(), "n1", OFFERED, {"n1": nrt(*two_zones(cpu="3"))}.get
        ).passes
        assert tested.filter(
            guaranteed(), "n1", OFFERED, {"n1": nrt(*two_zones(cpu="4"))}.get
        ).passes


class TestOverReserve:
    def test_a_reservation_is_subtracted_in_every_zone_and_a_refusal_marks_the_node(self) -> None:
        tested = plugin(Arguments(cache_resync_period_s=5), nrt(*two_zones(cpu="7")))
        tested.reserve(guaranteed("a"), "n1")
        verdict = tested.filter(guaranteed("b"), "n1", OFFERED, nowhere)
        assert (verdict.message, verdict.detail) == (
            "cannot align container",
            "container c0, resource cpu: no zone suits it together with the resources before it",
        )
        assert tested.cache.desynced().maybe_overreserved == ("n1",)  # type: ignore[attr-defined]
        tested.unreserve(guaranteed("a"), "n1")
        assert tested.filter(guaranteed("b"), "n1", OFFERED, nowhere).passes

    def test_a_node_without_object_passes_and_scores_zero(self) -> None:
        tested = plugin(Arguments(cache_resync_period_s=5), nrt(*two_zones()))
        assert tested.filter(guaranteed(), "n2", OFFERED, nowhere).passes
        assert tested.score(guaranteed(), "n2", nowhere) == 0
        assert tested.score(guaranteed(), "n1", nowhere) > 0


class TestStatedVerdicts:
    """Answers for inputs on which the original panics or answers nonsense."""

    def test_zone_64_does_not_count_like_those_above_it(self) -> None:
        only_64, with_0 = (
            nrt(zone(64, cpu="8", memory="8Gi")),
            nrt(zone(64, cpu="8", memory="8Gi"), zone(0, cpu="8", memory="8Gi")),
        )
        assert filter_node(guaranteed(), OFFERED, View(only_64)).message == "cannot align container"
        assert filter_node(guaranteed(), OFFERED, View(with_0)).passes

    @pytest.mark.parametrize("strategy", [*ZONE_STRATEGIES, "LeastNUMANodes"])
    def test_sparse_zone_ids_score_like_dense_ones(self, strategy: str) -> None:
        dense = nrt(zone(0, cpu="8", memory="8Gi"), zone(1, cpu="6", memory="8Gi"))
        sparse = nrt(zone(3, cpu="8", memory="8Gi"), zone(60, cpu="6", memory="8Gi"))
        both = [score_node(guaranteed(), View(each), strategy, {}) for each in (dense, sparse)]
        assert both[0] == both[1] > 0

    @pytest.mark.parametrize("strategy", ["LeastAllocated", "MostAllocated", "BalancedAllocation"])
    def test_a_container_that_requests_nothing_is_left_out_of_the_mean(self, strategy: str) -> None:
        level = {"limits": {"cpu": "4", "memory": "1Gi"}, "requests": {"cpu": "4", "memory": "1Gi"}}
        asking, idle = container(cpu="4", memory="1Gi"), {"name": "idle"}
        alone, with_idle = (
            pod("a", asking, resources=level),
            pod("b", asking, idle, resources=level),
        )
        view = View(nrt(*two_zones()))
        assert (
            score_node(alone, view, strategy, {}) == score_node(with_idle, view, strategy, {}) > 0
        )
        assert score_node(pod("c", idle, resources=level), view, strategy, {}) == 100

    def test_a_single_resource_is_in_balance_with_itself(self) -> None:
        single = pod(
            "a",
            container(cpu="4"),
            resources={
                "limits": {"cpu": "4", "memory": "1Gi"},
                "requests": {"cpu": "4", "memory": "1Gi"},
            },
        )
        assert score_node(single, View(nrt(*two_zones())), "BalancedAllocation", {}) == 100
        assert score_node(single, View(nrt(*two_zones(cpu="3"))), "BalancedAllocation", {}) == 0

    def test_more_zones_than_the_limit_score_zero(self) -> None:
        wide = nrt(
            *(zone(at, cpu="1", memory="1Gi") for at in range(3)),
            policy="restricted",
            topologyManagerMaxNUMANodes="2",
        )
        assert score_node(guaranteed(cpu="3"), View(wide), "LeastNUMANodes", {}) == 0

    def test_sixty_four_zones_are_answered(self) -> None:
        object_ = nrt(
            *(zone(at, cpu="1", memory="1Gi") for at in range(64)),
            policy="restricted",
            topologyManagerMaxNUMANodes="64",
        )
        assert 0 <= score_node(guaranteed(cpu="33"), View(object_), "LeastNUMANodes", {}) <= 100

    def test_a_missing_node_is_an_error_status(self) -> None:
        verdict = filter_node(guaranteed(), None, View())
        assert (verdict.code, verdict.message) == (Code.ERROR, "node not found")


class TestFromTopologysOwnValues:
    def test_a_report_makes_the_object_an_exporter_would_publish(self) -> None:
        zone_amounts = {
            "cpu": ZoneResource(8000, 8000, 6500),
            "memory": ZoneResource(2**33, 2**33, 2**32),
        }
        report = Report(
            "n1",
            "boot",
            5,
            policy="single-numa-node",
            scope="pod",
            zones=(Zone(3, zone_amounts, {3: 10}),),
            fingerprint="pfp0v001x",
        )
        made = from_report(report)
        assert (made.manager.policy, made.manager.scope, made.manager.max_numa_nodes) == (
            "single-numa-node",
            "pod",
            8,
        )
        assert [(each.name, each.available.text()) for each in made.zones[0].resources] == [
            ("cpu", "6500m"),
            ("memory", "4Gi"),
        ]
        assert made.zones[0].costs == (("node-3", 10),)

    def test_a_domain_pod_keeps_its_class_and_its_request(self) -> None:
        made = from_domain(
            DomainPod(
                "u", "ns", "p", "Guaranteed", (Container("c", "app", {"cpu": 1500}, {"cpu": 1500}),)
            ),
            "n1",
            "Running",
        )
        assert qos_class(made) == "Guaranteed"
        assert effective_request(made)["cpu"].text() == "1500m"


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        ({"zones": 3}, "zones"),
        ({"zones": [3]}, "zones[0]"),
        ({"zones": [{"resources": [{"available": "1x"}]}]}, "zones[0].resources[0].available"),
        ({"zones": [{"costs": [{"value": "10"}]}]}, "zones[0].costs[0].value"),
        ({"zones": [{"costs": [{"value": 2**70}]}]}, "zones[0].costs[0].value"),
        ({"attributes": [{"name": 3}]}, "attributes[0].name"),
        ({"topologyPolicies": "None"}, "topologyPolicies"),
    ],
)
def test_an_unusable_object_is_refused_by_field(raw: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidObjectError) as refused:
        parse_nrt(raw)
    assert refused.value.field == field


def test_an_unusable_pod_is_refused_by_field() -> None:
    with pytest.raises(
        InvalidObjectError,
        match=r"spec.containers\[0\].resources.requests.cpu: 'two' is not usable",
    ):
        parse_pod({"spec": {"containers": [{"resources": {"requests": {"cpu": "two"}}}]}})


def test_an_unusable_node_is_refused_by_field() -> None:
    with pytest.raises(InvalidObjectError, match=r"status.allocatable"):
        named_resources({"status": {"allocatable": [1]}})


AMOUNTS = st.dictionaries(
    st.sampled_from(["cpu", "memory", "vendor.example/gpu", "ephemeral-storage", "hugepages-2Mi"]),
    st.sampled_from(["0", "-3", "500m", "2", "1e30", "16Gi", "0.0001"]),
    max_size=4,
)
ZONES = st.lists(
    st.tuples(st.integers(-2, 70), AMOUNTS, st.sampled_from(["Node", "Socket"])), max_size=5
)


@given(
    zones=ZONES,
    amounts=st.lists(AMOUNTS, min_size=1, max_size=3),
    scope=st.sampled_from(["pod", "container"]),
)
@settings(max_examples=examples(200), deadline=None)
def test_any_zones_and_amounts_give_a_verdict_and_scores_within_bounds(
    zones: list[tuple[int, dict[str, str], str]], amounts: list[dict[str, str]], scope: str
) -> None:
    view = View(nrt(*(zone(at, None, kind, **held) for at, held, kind in zones), scope=scope))
    containers = [
        {"name": "c", "resources": {"requests": each, "limits": each}} for each in amounts
    ]
    tested = msgspec.structs.replace(pod("p", *containers), reported_qos="Guaranteed")
    assert filter_node(tested, OFFERED, view).code in Code
    for strategy in (*ZONE_STRATEGIES, "LeastNUMANodes"):
        assert 0 <= score_node(tested, view, strategy, {"cpu": -4}) <= 100
