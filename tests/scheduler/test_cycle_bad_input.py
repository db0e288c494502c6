"""Bad input has a stated verdict and stops nothing: absurd pods, odd zones, unknown policies."""

from __future__ import annotations

import msgspec
import pytest

from services.scheduler.snapshot.config import CycleConfig
from services.scheduler.snapshot.result import Placed, Unplaceable
from services.scheduler.snapshot.topology_policy import POD_ANNOTATION, POLICY_LABEL
from shared.domain.pod import Pod
from shared.domain.refusal import Reason
from shared.domain.report import Zone, ZoneResource
from shared.domain.resources import Amounts
from shared.domain.zone_allocation import MEMORY_POLICY
from tests.scheduler.cycle_worlds import World, amounts, container, guaranteed, report, zone

ROOM = zone(0, amounts(8, 8))


def asking(requests: Amounts, annotation: str = "") -> Pod:
    """Return a Guaranteed pod of one container with this request."""
    pod = guaranteed("p", container("c", requests))
    return msgspec.structs.replace(
        pod, annotations={POD_ANNOTATION: annotation} if annotation else {}
    )


def refused(world: World, pod: Pod) -> Unplaceable:
    """Return the refusal of the pod. A plain pod must still be placed afterwards."""
    refusal = world.cluster.place(pod)
    assert isinstance(refusal, Unplaceable)
    assert not world.cluster.waiting_could_fit(pod, ["n"])
    return refusal


def test_a_resource_that_no_node_has_is_named() -> None:
    world = World()
    world.node("n", ROOM)
    assert refused(world, asking(amounts(1, 1) | {"example.com/unknown": 1})).message == (
        "0/1 nodes are available: 1 Insufficient example.com/unknown."
    )
    assert isinstance(world.cluster.place(guaranteed("q", container("c", amounts(1)))), Placed)


@pytest.mark.parametrize(
    ("amount", "word"), [(-1, "a negative"), (1 << 62, "an absurd"), (1 << 80, "an absurd")]
)
def test_negative_and_absurd_quantities_are_invalid(amount: int, word: str) -> None:
    world = World()
    world.node("n", ROOM)
    refusal = refused(world, asking({"cpu": 1000, "memory": amount}))
    assert refusal.message.startswith(f"invalid pod: container c asks for {word} amount of memory")
    verdict = world.cluster.verdict(asking({"cpu": 1000, "memory": amount}), "n")
    assert verdict is not None
    assert verdict.reason is Reason.INVALID_POD


def test_a_node_without_zones_takes_no_aligned_pod_but_others() -> None:
    world = World()
    world.node("n")
    assert (
        refused(world, asking(amounts(1, 1))).message
        == "0/1 nodes are available: 1 node(s) had no NUMA zones."
    )
    assert isinstance(world.cluster.place(Pod(uid="q", namespace="ns", name="q")), Placed)


@pytest.mark.parametrize("policy", ["single-numa-node", "restricted", "best-effort", "none"])
def test_sixty_four_zones_are_judged_and_more_are_malformed(policy: str) -> None:
    world = World()
    world.node("n", *(zone(number, amounts(2, 2)) for number in range(64)), policy=policy)
    assert isinstance(world.cluster.place(asking(amounts(2, 2))), Placed)
    world.node("n", *(zone(number, amounts(2, 2)) for number in range(65)), policy=policy)
    assert refused(world, asking(amounts(2, 2))).message == (
        "0/1 nodes are available: 1 node(s) had a malformed topology "
        "report: 65 zones, more than 64."
    )


def test_too_many_zone_sets_are_refused_and_counted_not_walked() -> None:
    world = World()
    world.node("n", *(zone(number, amounts(2, 2)) for number in range(64)), policy="restricted")
    assert refused(world, asking(amounts(40, 40))).message == (
        "0/1 nodes are available: 1 node(s) had too many possible states to check (undecided: "
        "CPUs spread over zones)."
    )


def test_sparse_zone_ids_are_kept_as_they_are() -> None:
    world = World()
    world.node("n", zone(7, amounts(2, 8)), zone(100, amounts(8, 8)), zone(255, amounts(4, 8)))
    placed = world.cluster.place(asking(amounts(6, 6)))
    assert isinstance(placed, Placed)
    assert placed.predicted == {"c": (100,)}
    assert set(world.cluster.assume(placed, asking(amounts(6, 6)))) == {100}


def test_zones_that_promise_more_than_the_node_are_held_to_the_node() -> None:
    world = World()
    world.node("n", zone(0, amounts(32, 32)), allocatable=amounts(4, 32, pods=10))
    assert (
        refused(world, asking(amounts(8, 8))).message
        == "0/1 nodes are available: 1 Insufficient cpu."
    )


def test_zones_that_promise_less_than_the_node_are_held_to_the_zones() -> None:
    world = World()
    world.node("n", zone(0, amounts(4, 32), amounts(8, 32)), allocatable=amounts(64, 64, pods=10))
    assert refused(world, asking(amounts(8, 8))).message == (
        "0/1 nodes are available: 1 node(s) had no NUMA zone with 8 free cpu (best: 4 on n/zone 0)."
    )


def test_more_than_any_empty_zone_has_is_said_to_be_hopeless() -> None:
    world = World()
    world.node("n", zone(0, amounts(4, 32)), zone(1, amounts(6, 32)))
    refusal = refused(world, asking(amounts(8, 8)))
    assert refusal.message == (
        "0/1 nodes are available: 1 node(s) had no NUMA zone as "
        "large as 8 cpu (best: 6 on n/zone 1)."
    )
    assert (
        refusal.detail[0]["remedy"]
        == "request at most 6 cpu in container c, or use nodes with larger zones"
    )


def test_a_doubled_zone_is_a_malformed_report() -> None:
    world = World()
    world.node("n", ROOM, ROOM)
    assert refused(world, asking(amounts(1, 1))).message == (
        "0/1 nodes are available: 1 node(s) had a malformed topology "
        "report: zone 0 is reported twice."
    )


def test_a_negative_zone_id_is_a_malformed_report() -> None:
    world = World()
    world.node("n", zone(-1, amounts(8, 8)))
    assert "negative id" in refused(world, asking(amounts(1, 1))).message


def test_availability_beyond_64_bits_neither_raises_nor_wraps() -> None:
    world = World()
    world.node(
        "n",
        Zone(
            0,
            {
                "cpu": ZoneResource(1 << 70, 1 << 70, 1 << 70),
                "memory": ZoneResource(1 << 70, 1 << 70, 1 << 70),
            },
        ),
    )
    assert isinstance(world.cluster.place(asking(amounts(8, 8))), Placed)
    world.node(
        "n", Zone(0, {"cpu": ZoneResource(8000, 8000, -(1 << 70)), "memory": ZoneResource(8, 8, 8)})
    )
    assert isinstance(world.cluster.place(asking(amounts(8))), Unplaceable)


def test_an_unknown_policy_label_counts_only_where_the_label_decides() -> None:
    first = World()
    first.node("n", ROOM, labels={POLICY_LABEL: "Sometimes"})
    assert isinstance(first.cluster.place(asking(amounts(1, 1))), Placed)
    second = World(CycleConfig(policy_precedence="label-first"))
    second.node("n", ROOM, labels={POLICY_LABEL: "Sometimes"})
    assert refused(second, asking(amounts(1, 1))).message == (
        f"0/1 nodes are available: 1 node(s) had an unknown topology "
        f"policy: label {POLICY_LABEL}=Sometimes."
    )


def test_an_unknown_policy_in_the_report_is_refused() -> None:
    world = World()
    world.node("n", ROOM, policy="sometimes")
    assert refused(world, asking(amounts(1, 1))).message == (
        "0/1 nodes are available: 1 node(s) had an unknown topology "
        "policy: report names policy 'sometimes'."
    )


@pytest.mark.parametrize(
    "text", ["{", '{"numaTopologyPolicy": 4}', '{"numaTopologyPolicy": "Sometimes"}']
)
def test_an_unreadable_annotation_makes_the_pod_invalid(text: str) -> None:
    world = World()
    world.node("n", ROOM)
    assert refused(world, asking(amounts(1, 1), text)).message.startswith(
        f"invalid pod: annotation {POD_ANNOTATION}: "
    )


def annotated(policy: str, exclusive: str) -> Pod:
    return asking(
        amounts(1, 1),
        f'{{"numaTopologyPolicy": "{policy}", "singleNUMANodeExclusive": "{exclusive}"}}',
    )


@pytest.mark.parametrize("policy", ["Restricted", "None", ""])
def test_exclusiveness_that_no_kubelet_keeps_is_refused_with_a_remedy(
    policy: str,
) -> None:
    world = World()
    world.node("n", ROOM, policy="restricted")
    message = refused(world, annotated(policy, "Required")).message
    assert "1 node(s) had a different topology policy: singleNUMANodeExclusive Req" in message
    assert "write numaTopologyPolicy SingleNUMANode, too, or Preferred" in message


@pytest.mark.parametrize(
    ("policy", "exclusive", "node"),
    [
        ("SingleNUMANode", "Required", "single-numa-node"),
        ("BestEffort", "Required", "best-effort"),
        ("Restricted", "Preferred", "restricted"),
        ("Restricted", "", "restricted"),
    ],
)
def test_exclusiveness_that_is_kept_or_has_no_effect_places_the_pod(
    policy: str, exclusive: str, node: str
) -> None:
    world = World()
    world.node("n", ROOM, policy=node)
    assert isinstance(world.cluster.place(annotated(policy, exclusive)), Placed)


def test_an_unknown_exclusiveness_is_named() -> None:
    world = World()
    world.node("n", ROOM)
    assert (
        "unknown singleNUMANodeExclusive 'Always'"
        in refused(world, annotated("SingleNUMANode", "Always")).message
    )


def test_a_pod_with_a_policy_runs_where_the_kubelet_keeps_it() -> None:
    world = World()
    wish = '{"numaTopologyPolicy": "SingleNUMANode"}'
    for policy in ("restricted", "best-effort"):
        world.node("n", zone(0, amounts(4, 8)), zone(1, amounts(4, 8)), policy=policy)
        assert isinstance(world.cluster.place(asking(amounts(4, 1), wish)), Placed)
        assert isinstance(world.cluster.place(asking(amounts(6, 1), wish)), Unplaceable)
    verdict = world.cluster.verdict(asking(amounts(6, 1), wish), "n")
    assert verdict is not None
    assert (verdict.policy, verdict.policy_source) == ("best-effort", "report")
    assert verdict.phrase == (
        "node(s) were not certain to put the pod into one NUMA zone: pod annotation "
        f"{POD_ANNOTATION} (Koordinator) wants it, and the kubelet has best-effort; "
        "topologyManagerPolicy single-numa-node keeps it"
    )
    restricted = '{"numaTopologyPolicy": "Restricted"}'
    assert refused(world, asking(amounts(1, 1), restricted)).message == (
        "0/1 nodes are available: 1 node(s) had a different topology policy: pod "
        f"annotation {POD_ANNOTATION} (Koordinator) wants restricted, node has best-effort."
    )


@pytest.mark.parametrize(
    ("precedence", "policy"), [("nrt-first", "single-numa-node"), ("label-first", "restricted")]
)
def test_the_precedence_of_report_and_label_is_configurable_and_explained(
    precedence: str, policy: str
) -> None:
    world = World(msgspec.convert({"policy_precedence": precedence}, CycleConfig))
    world.node("n", zone(0, amounts(1, 8), amounts(4, 8)), labels={POLICY_LABEL: "Restricted"})
    verdict = world.cluster.verdict(asking(amounts(4, 1)), "n")
    assert verdict is not None
    assert (verdict.policy, verdict.policy_source) == (
        policy,
        "report" if precedence == "nrt-first" else "node label",
    )


@pytest.mark.parametrize("label", ["None", ""])
def test_a_label_none_leaves_the_policy_to_the_report_also_where_labels_decide(label: str) -> None:
    world = World(CycleConfig(policy_precedence="label-first"))
    world.node("n", zone(0, amounts(1, 8), amounts(4, 8)), labels={POLICY_LABEL: label})
    verdict = world.cluster.verdict(asking(amounts(4, 1)), "n")
    assert verdict is not None
    assert (verdict.policy, verdict.policy_source) == ("single-numa-node", "report")


@pytest.mark.parametrize(
    "text", ["SingleNUMANodeContainerLevel", "SingleNUMANodePodLevel", "SingleNUMANode"]
)
def test_legacy_policy_names_are_understood(text: str) -> None:
    world = World()
    world.node("n", zone(0, amounts(4, 8)), zone(1, amounts(4, 8)), policy=text)
    assert isinstance(world.cluster.place(asking(amounts(4, 8))), Placed)
    assert isinstance(world.cluster.place(asking(amounts(5, 8))), Unplaceable)


def test_the_memory_label_may_leave_memory_out_where_labels_decide() -> None:
    small = zone(0, amounts(8, 1))
    for precedence, fits in (("nrt-first", False), ("label-first", True)):
        world = World(msgspec.convert({"policy_precedence": precedence}, CycleConfig))
        world.node("n", small, labels={MEMORY_POLICY: "none"})
        assert isinstance(world.cluster.place(asking(amounts(4, 4))), Placed) is fits


def test_the_memory_label_may_take_memory_in_that_no_manager_pins() -> None:
    for labels, fits in (({}, True), ({MEMORY_POLICY: "static"}, False)):
        world = World()
        world.observe("n", labels=labels)
        world.report(report("n", (zone(0, amounts(8, 1)),), tracked=("cpu",)))
        assert isinstance(world.cluster.place(asking(amounts(4, 4))), Placed) is fits


def test_odd_cpus_are_refused_under_full_pcpus_only() -> None:
    world = World()
    world.node("n", ROOM, options={"full-pcpus-only": "true"})
    assert isinstance(world.cluster.place(asking(amounts(2, 2))), Placed)
    assert refused(world, asking(amounts(3, 2))).message == (
        "0/1 nodes are available: 1 node(s) gave whole physical "
        "cores only, and 3 cpu is no multiple "
        "(undecided: full cores or sockets)."
    )


def test_an_empty_cluster_says_so() -> None:
    assert (
        refused(World(), asking(amounts(1))).message
        == "0/0 nodes are available: the cluster has no nodes."
    )


def test_an_annotation_that_is_nested_too_deeply_is_refused() -> None:
    """Its decoder raises RecursionError, which would end the scheduler's turn."""
    world = World()
    world.node("n", ROOM)
    refusal = refused(world, asking(amounts(1, 1), '{"other":' + "[" * 9000))
    assert POD_ANNOTATION in refusal.message
