"""Decoding the zones of containers: the inverse of the encoding, and errors that name the field."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.domain.report import Placement, ZonedAmount
from shared.kube.nrt import NrtError, from_nrt
from shared.kube.numaplacement import VectorError, decode, encode
from shared.kubelet.fingerprint import container_hash
from tests.kube.test_nrt import nrt

METADATA = "topology.node.k8s.io/numaplacement-metadata"
VECTOR = "topology.node.k8s.io/numaplacement-vector"


def placement(name: str, zone: int) -> Placement:
    return Placement("ns", name, "c", (ZonedAmount("cpu", (zone,), 1000),))


@given(st.dictionaries(st.integers(0, 4000), st.sampled_from([0, 1, 3]), max_size=300))
def test_decoding_is_the_inverse_of_encoding(zone_of: dict[int, int]) -> None:
    payload = encode([placement(f"p{n}", zone) for n, zone in zone_of.items()], (0, 1, 3))
    assert payload is not None
    by_hash = {container_hash("ns", f"p{n}", "c"): zone for n, zone in zone_of.items()}
    assert decode(*payload) == tuple(by_hash[key] for key in sorted(by_hash))


def test_a_payload_of_the_library_is_read() -> None:
    """numaplacement v0.1.0: offsets 0 and 70 of 80 containers are in zone 1; 70 is 64 + 6."""
    zones = decode("npv0v001::ve=leb89::cc=80::nn=2::bn=0", {1: "!f)"})
    assert zones is not None
    assert [offset for offset, zone in enumerate(zones) if zone == 1] == [0, 70]
    assert len(zones) == 80


def test_another_version_of_the_format_is_ignored() -> None:
    assert decode("npv0v002::anything", {0: "\\"}) is None


@given(st.text(max_size=60), st.dictionaries(st.integers(-1, 3), st.text(max_size=8), max_size=3))
def test_no_text_makes_it_crash(text: str, vectors: dict[int, str]) -> None:
    for metadata in (text, "npv0v001::" + text, "npv0v001::ve=leb89::cc=9::nn=3::bn=1"):
        try:
            zones = decode(metadata, vectors)
        except VectorError:
            continue
        assert zones is None or all(zone >= 0 for zone in zones)


def wrong(metadata: str, vector: str = "", zone: str = "node-2") -> dict[str, object]:
    object_ = nrt(attributes=[{"name": METADATA, "value": metadata}])
    other_zone = {"name": "node-0", "type": "Node", "resources": []}
    object_["zones"].append(other_zone)
    if vector:
        target = next(each for each in object_["zones"] if each["name"] == zone)
        target["attributes"] = [{"name": VECTOR, "value": vector}]
    return object_


@pytest.mark.parametrize(
    ("metadata", "vector", "named"),
    [
        ("junk", "", f"NodeResourceTopology n1: attribute {METADATA}: 'junk' does not begin"),
        ("npv0v001::ve=leb89::cc=1::nn=3", "", f"attribute {METADATA}: .* is missing"),
        ("npv0v001::ve=b64::cc=1::nn=3::bn=0", "", "encoding ve='b64' is unknown"),
        ("npv0v001::ve=leb89::cc=-1::nn=3::bn=0", "", "cc='-1' is no number"),
        ("npv0v001::ve=leb89::cc=1::nn=3::bn=3", "", "bn='3' is no number from 0 to 2"),
        ("npv0v001::ve=leb89::cc=1::nn=3::bn=0::cc=2", "", "'cc=2' is none of"),
        ("npv0v001::ve=leb89::cc=99999999999::nn=3::bn=0", "", "cc='99999999999' is no number"),
        ("npv0v001::ve=leb89::cc=1::nn=3::bn=1", "", "containers in zone 1, which the object"),
        ("npv0v001::ve=leb89::cc=1::nn=3::bn=0", '"', f"zone node-2: attribute {VECTOR}: "),
        ("npv0v001::ve=leb89::cc=1::nn=3::bn=0", '"', "no symbol of LEB89"),
        ("npv0v001::ve=leb89::cc=1::nn=3::bn=0", "f", "ends inside a number"),
        ("npv0v001::ve=leb89::cc=1::nn=3::bn=0", "#", "offset 1 is above the 1 containers"),
        ("npv0v001::ve=leb89::cc=1::nn=3::bn=0", "~~~~~~", "above the 1 containers"),
        ("npv0v001::ve=leb89::cc=3::nn=3::bn=0", "#!", "offset 1 appears twice"),
        ("npv0v001::ve=leb89::cc=1::nn=3::bn=2", "!", "zone 2 may have none"),
        ("npv0v001::ve=leb89::cc=1::nn=1::bn=0", "!", "zone 2 may have none"),
    ],
)
def test_a_wrong_payload_is_refused_by_object_and_field(
    metadata: str, vector: str, named: str
) -> None:
    with pytest.raises(NrtError, match=named):
        from_nrt(wrong(metadata, vector), "", 0)


def test_the_zones_of_containers_are_part_of_the_report() -> None:
    node_report = wrong("npv0v001::ve=leb89::cc=2::nn=3::bn=0", "#")
    assert from_nrt(node_report, "", 0).container_zones == (0, 2)


def test_what_resource_topology_exporter_wrote_names_the_zones_that_the_kubelet_chose() -> None:
    """resource-topology-exporter 0.25.0 beside the simulator's kubelet, which had put two pods of 6
    CPUs into each zone of 15."""
    metadata, vector = "npv0v001::ve=leb89::cc=4::nn=2::bn=0", "!#"
    zone_of = {"low-0": 0, "low-1": 0, "low-2": 1, "low-3": 1}
    by_hash = {container_hash("default", name, "main"): zone for name, zone in zone_of.items()}
    assert decode(metadata, {1: vector}) == tuple(by_hash[key] for key in sorted(by_hash))
