"""Policies by source, pods by class, scores of nodes, and annotations there and back."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from shared.domain.zone_allocation import RESOURCE_STATUS
from shared.owned.annotations import holding_of
from shared.owned.free import free_of
from shared.owned.policy import combined_policy
from shared.owned.request import PodSpecError, request_of
from shared.owned.scores import node_score_by_zones
from shared.owned.values import Allocation, Holding, OwnedNode, OwnedRequest, ZoneAmounts
from tests.owned.annotations import annotations_of
from tests.owned.machines import allocation, cpu_set, node, nodes, placed, requests, share

SPEC = "scheduling.koordinator.sh/resource-spec"
TOPOLOGY = "scheduling.koordinator.sh/numa-topology-spec"
QOS = "koordinator.sh/qosClass"


def test_a_pod_with_a_policy_runs_on_nodes_of_the_same_policy_and_of_none() -> None:
    assert combined_policy("none", "restricted") == "restricted"
    assert combined_policy("restricted", None) == "restricted"
    assert combined_policy("restricted", "best-effort") is None


@pytest.mark.parametrize(
    ("labels", "is_guaranteed", "takes_set"),
    [
        ({QOS: "LSE"}, False, True),
        ({QOS: "LSR", "koordinator.sh/priority-class": "koord-prod"}, False, True),
        ({QOS: "LSR", "koordinator.sh/priority-class": "koord-batch"}, False, False),
        ({QOS: "LS"}, True, False),
        ({}, True, True),
        ({}, False, False),
    ],
)
def test_the_class_of_a_pod_decides_whether_it_takes_a_cpu_set(
    labels: dict[str, str], is_guaranteed: bool, takes_set: bool
) -> None:
    made = request_of({"cpu": 2000}, labels, {}, is_guaranteed=is_guaranteed)
    assert made.takes_cpu_set is takes_set
    assert made.bind == ("FullPCPUs" if takes_set else "")


def test_annotations_of_a_pod_are_read_and_refused_by_name() -> None:
    spec = '{"requiredCPUBindPolicy":"Default","preferredCPUExclusivePolicy":"PCPULevel"}'
    topology = '{"numaTopologyPolicy":"SingleNUMANode","singleNUMANodeExclusive":"Preferred"}'
    made = request_of(
        {"cpu": 2000}, {QOS: "LSE"}, {SPEC: spec, TOPOLOGY: topology}, "SpreadByPCPUs"
    )
    assert (made.bind, made.bind_is_required, made.cpu_exclusive) == (
        "SpreadByPCPUs", True, "PCPULevel",
    )  # fmt: skip
    assert (made.policy, made.zone_exclusive) == ("single-numa-node", "Preferred")
    for key, text in ((TOPOLOGY, '{"numaTopologyPolicy":"Strict"}'), (SPEC, "["),
                      (TOPOLOGY, '{"singleNUMANodeExclusive":"Always"}')):  # fmt: skip
        with pytest.raises(PodSpecError, match=key):
            request_of({"cpu": 2000}, {QOS: "LSE"}, {key: text})


@pytest.mark.parametrize(("strategy", "score"), [("MostAllocated", 50), ("LeastAllocated", 50)])
def test_four_zones_with_one_used_and_one_taken_score_half(strategy: str, score: int) -> None:
    owner = node(zones=4, policy="single-numa-node", node_strategy=strategy)
    used = Holding(zones=(ZoneAmounts(0, {"cpu": 8000}),))
    taken = allocation(owner, share(4000), used)
    assert node_score_by_zones(owner, free_of(owner, [used]), taken) == score


def test_the_annotations_are_those_of_koordinator() -> None:
    owner = node(policy="restricted")
    written = annotations_of(
        allocation(owner, cpu_set(4, 2)), {SPEC: '{"preferredCPUBindPolicy":"Default"}'}
    )
    assert written == {
        SPEC: '{"preferredCPUBindPolicy":"FullPCPUs"}',
        RESOURCE_STATUS: '{"cpuset":"0-3","numaNodeResources":[{"node":0,"resources":'
        '{"cpu":"4","memory":"2Gi"}}]}',
    }
    assert annotations_of(allocation(node(), share(1500)), {}) == {}


@settings(max_examples=60)
@given(nodes(), requests(), requests())
def test_a_written_allocation_is_read_back(
    owner: OwnedNode, earlier: OwnedRequest, request: OwnedRequest
) -> None:
    from shared.owned.admit import admit

    outcome = admit(owner, free_of(owner, placed(owner, [earlier])), request)
    if isinstance(outcome, Allocation) and outcome.mask is not None:
        spec = {SPEC: f'{{"preferredCPUExclusivePolicy":"{request.cpu_exclusive}"}}'}
        written = annotations_of(outcome, spec)
        assert holding_of({**spec, **written}) == outcome.holding


@pytest.mark.parametrize(
    "text",
    [
        "{",
        '{"cpuset":"a"}',
        '{"numaNodeResources":[{"node":0,"resources":{"cpu":"x"}}]}',
        '{"numaNodeResources":[{"node":0,"resources":{"cpu":"-100"}}]}',
        '{"cpuset":' + "[" * 9000,
        '{"other":' + "[" * 9000,
    ],
)
def test_a_broken_status_is_refused(text: str) -> None:
    with pytest.raises(PodSpecError, match="resource-status"):
        holding_of({RESOURCE_STATUS: text})
    assert holding_of({}) is None
