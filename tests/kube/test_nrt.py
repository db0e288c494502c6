"""NodeResourceTopology objects in and out: foreign producers' shapes, and refusals that name what
is wrong.
"""

from __future__ import annotations

from typing import Any

import pytest

from shared.domain.report import Placement, Report, Zone, ZonedAmount, ZoneResource
from shared.kube import numaplacement
from shared.kube.nrt import NrtError, from_nrt, to_nrt


def nrt(**changes: Any) -> dict[str, Any]:
    resource = {"name": "memory", "capacity": "64Gi", "allocatable": "63Gi", "available": "1k"}
    cpu = {"name": "cpu", "capacity": 8, "allocatable": "7500m", "available": "0.5"}
    zone = {
        "name": "node-2",
        "type": "Node",
        "costs": [{"name": "node-2", "value": 10}],
        "resources": [resource, cpu],
    }
    return {"metadata": {"name": "n1"}, "zones": [zone], **changes}


def test_written_by_hand_with_any_quantity() -> None:
    report = from_nrt(nrt(topologyPolicies=["RestrictedPodLevel"]), "b", 7)
    assert report.zones == (
        Zone(
            2,
            {"cpu": ZoneResource(8000, 7500, 500), "memory": ZoneResource(2**36, 63 * 2**30, 1000)},
            {2: 10},
        ),
    )
    assert (report.policy, report.scope, report.boot_id, report.boot_time_ms) == (
        "restricted",
        "pod",
        "b",
        7,
    )
    assert (report.placements, report.fingerprint, report.fingerprint_method) == (None, "", "")


def test_an_object_has_attributes_and_no_deprecated_policies() -> None:
    """With them the upstream plugin logged two lines for each node and pod: 82,172 for 200 pods on
    200 nodes.
    """
    written = to_nrt(from_nrt(nrt(topologyPolicies=["RestrictedPodLevel"]), "b", 7))
    assert "topologyPolicies" not in written
    attributes = {item["name"]: item["value"] for item in written["attributes"]}
    assert attributes["topologyManagerPolicy"] == "restricted"
    assert attributes["topologyManagerScope"] == "pod"


@pytest.mark.parametrize(
    ("legacy", "attributes", "policy", "scope"),
    [
        (["RestrictedPodLevel"], {"topologyManagerPolicy": "best-effort"}, "best-effort", "pod"),
        (
            ["SingleNUMANodeContainerLevel"],
            {"topologyManagerScope": "pod"},
            "single-numa-node",
            "pod",
        ),
        (["RestrictedPodLevel", "BestEffortPodLevel"], {}, "restricted", "pod"),
        ([], {"topologyManagerScope": "pod"}, "unknown", "pod"),
        (
            ["BestEffortPodLevel"],
            {"topologyManagerPolicy": "", "topologyManagerScope": ""},
            "best-effort",
            "pod",
        ),
    ],
)
def test_attributes_override_the_older_policies_field_by_field(
    legacy: list[str], attributes: dict[str, str], policy: str, scope: str
) -> None:
    pairs = [{"name": name, "value": value} for name, value in attributes.items()]
    report = from_nrt(nrt(topologyPolicies=legacy, attributes=pairs), "", 0)
    assert (report.policy, report.scope) == (policy, scope)


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("4", 4),
        ("1", 8),
        ("-2", 8),
        ("many", 8),
        ("99999", 1024),
        ("+16", 16),
        ("0000000000016", 16),
        ("９", 8),
        ("9" * 19, 8),
    ],
)
def test_the_limit_of_zones_is_taken_where_it_is_one(text: str, limit: int) -> None:
    report = from_nrt(
        nrt(attributes=[{"name": "topologyManagerMaxNUMANodes", "value": text}]), "", 0
    )
    assert report.max_numa_nodes == limit


def test_an_attribute_that_says_nothing_takes_nothing_back() -> None:
    pairs = [
        ("topologyManagerScope", "pod"),
        ("topologyManagerPolicy", "restricted"),
        ("topologyManagerScope", ""),
    ]
    report = from_nrt(
        nrt(attributes=[{"name": name, "value": value} for name, value in pairs]), "", 0
    )
    assert (report.policy, report.scope) == ("restricted", "pod")


def test_nfd_attribute_without_method_and_old_annotation_mean_all_pods() -> None:
    attributes = [{"name": "nodeTopologyPodsFingerprint", "value": "pfp0v001ef46db3751d8e999"}]
    assert from_nrt(nrt(attributes=attributes), "", 0).fingerprint_method == "all"
    annotated = {"name": "n1", "annotations": {"topology.node.k8s.io/fingerprint": "pfp0v001x"}}
    report = from_nrt(nrt(metadata=annotated), "", 0)
    assert (report.fingerprint, report.fingerprint_method) == ("pfp0v001x", "all")


def zone_with(**changes: Any) -> dict[str, Any]:
    return nrt(zones=[{**nrt()["zones"][0], **changes}])


def resource_with(**changes: Any) -> dict[str, Any]:
    return zone_with(resources=[{**nrt()["zones"][0]["resources"][0], **changes}])


@pytest.mark.parametrize(
    ("doc", "named"),
    [
        ({"zones": []}, "metadata"),
        ({"metadata": {"name": ""}, "zones": []}, "metadata.name"),
        ([], "expected the schema of v1alpha2"),
        (zone_with(name="zone0"), "expected node-<number>"),
        (nrt(zones=nrt()["zones"] * 2), "node-2 appears twice"),
        (nrt(zones=nrt()["zones"] * 65), "65 zones"),
        (resource_with(available="many"), "available 'many'"),
        (resource_with(allocatable="-1"), "negative"),
        (nrt(topologyPolicies=["Strict"]), "'Strict' is unknown"),
        (nrt(attributes=[{"name": "topologyManagerPolicy", "value": "x"}]), "'x' is unknown"),
        (
            nrt(attributes=[{"name": "topologyManagerScope", "value": "node"}]),
            "topologyManagerScope",
        ),
    ],
)
def test_an_object_that_means_nothing_is_refused_by_name(doc: object, named: str) -> None:
    with pytest.raises(NrtError, match=named):
        from_nrt(doc, "", 0)


def test_less_than_nothing_available_is_nothing() -> None:
    """NFD 76e6cc8 lists a held device of two zones twice, looks both up in the zone that it read
    last, and publishes -1 there.
    """
    (zone,) = from_nrt(resource_with(available="-1"), "", 0).zones
    assert {resource.available for resource in zone.resources.values()} == {0}


def test_decimal_quantities_as_producers_write_them() -> None:
    report = Report(
        "n",
        "b",
        1,
        zones=(
            Zone(
                0, {"cpu": ZoneResource(3000, 2500, 0), "memory": ZoneResource(2_000_000, 1024, 1)}
            ),
        ),
    )
    resources = {resource["name"]: resource for resource in to_nrt(report)["zones"][0]["resources"]}
    assert resources["cpu"] == {
        "name": "cpu",
        "capacity": "3",
        "allocatable": "2500m",
        "available": "0",
    }
    assert resources["memory"] == {
        "name": "memory",
        "capacity": "2M",
        "allocatable": "1024",
        "available": "1",
    }


def placement(name: str, *zones: int) -> Placement:
    return Placement("ns", name, "c", tuple(ZonedAmount("cpu", (zone,), 1000) for zone in zones))


def test_placement_payload_of_nothing_and_of_a_container_over_two_zones() -> None:
    assert numaplacement.encode([placement("idle")], (0, 1)) == (
        "npv0v001::ve=leb89::cc=0::nn=2::bn=0",
        {},
    )
    assert numaplacement.encode([placement("wide", 0, 1)], (0, 1)) is None


def test_placement_payload_lists_every_zone_but_the_busiest() -> None:
    encoded = numaplacement.encode(
        [placement(f"p{n}", 1 if n % 3 else 0) for n in range(300)], (0, 1)
    )
    assert encoded is not None
    metadata, vectors = encoded
    assert metadata == "npv0v001::ve=leb89::cc=300::nn=2::bn=1"
    assert list(vectors) == [0]
    assert len(vectors[0]) >= 100


def test_placement_payload_reckons_with_gaps_between_zone_ids_and_with_containers_alone() -> None:
    """numaplacement's decoder refuses ids at or above `nn`. Resources that a pod holds outside its
    containers belong to no container.
    """
    beyond = Placement("ns", "p", "", (ZonedAmount("cpu", (0,), 1000),))
    assert numaplacement.encode([placement("p", 5), beyond], (0, 5)) == (
        "npv0v001::ve=leb89::cc=1::nn=6::bn=5",
        {},
    )


@pytest.mark.parametrize(
    ("limit", "attributes_written"), [(8, []), (4, []), (16, ["16"]), (1024, ["1024"])]
)
def test_a_limit_of_zones_above_the_default_is_written(
    limit: int, attributes_written: list[str]
) -> None:
    attributes = to_nrt(Report("n", "b", 1, max_numa_nodes=limit, zones=(Zone(0),)))["attributes"]
    assert [
        attribute["value"]
        for attribute in attributes
        if attribute["name"] == "topologyManagerMaxNUMANodes"
    ] == attributes_written
