"""The NodeResourceTopology object of a node: its pessimistic amounts, its single writer, and its
deletion when the node leaves or stays silent.
"""

from __future__ import annotations

from typing import Any

import pytest

from services.topology_store import mirroring
from services.topology_store.mirroring import Pessimism, Present, Remove, Terms, Write
from shared.kube.nrt_mirrored import EXPIRED_SINCE, MARK, content, is_mirrored
from tests.ledger.given import History, container, cpu, held, pod, zone

NOW_US = 2_000_000_000_000_000


@pytest.fixture
def history() -> History:
    history_file = History()
    history_file.node()
    history_file.report(
        zone(0, 8), zone(1, 8), placements=(), fingerprint="pfp0v001x", fingerprint_method="all"
    )
    return history_file


def wanted(history: History, pessimism: Pessimism = "ledger", since_us: int = 0) -> dict[str, Any]:
    wanted_object = mirroring.wanted(history.n1, since_us, NOW_US, Terms(pessimism))
    assert wanted_object is not None
    return wanted_object


def free(made: dict[str, Any]) -> list[str]:
    return [
        resource["available"]
        for written_zone in made["zones"]
        for resource in written_zone["resources"]
        if resource["name"] == "cpu"
    ]


def test_an_idle_node_is_its_report_owned_by_its_node_and_marked_as_ours(history: History) -> None:
    wanted_object = wanted(history)
    assert free(wanted_object) == ["8", "8"]
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "node-uid-1"}
    assert wanted_object["metadata"]["ownerReferences"] == [owner]
    assert {"name": MARK, "value": "ledger"} in wanted_object["attributes"]
    assert is_mirrored(wanted_object)


@pytest.mark.parametrize(
    ("pessimism", "amounts"),
    [("ledger", ["2", "5"]), ("overreserve", ["2", "2"]), ("none", ["5", "5"])],
)
def test_an_unconfirmed_pod_is_subtracted_by_pessimism(
    pessimism: Pessimism, amounts: list[str]
) -> None:
    history = History()
    history.node()
    history.report(zone(0, 8, 5), zone(1, 8, 5))
    history.reserve(pod("a", cpus=3))
    history.n1.charges["uid-a"].zones = {0: cpu(3)}
    history.n1.free_min = {0: cpu(2), 1: cpu(5)}
    assert free(wanted(history, pessimism)) == amounts


def test_more_charged_than_free_is_nothing_free() -> None:
    history = History()
    history.node()
    history.report(zone(0, 2), zone(1, 2))
    for name in "abc":
        history.reserve(pod(name, cpus=2))
    assert free(wanted(history)) == ["0", "0"]


def test_the_placements_of_the_report_travel_in_the_object(history: History) -> None:
    listed = (held("a", 1, 3),)
    history.report(
        zone(0, 8),
        zone(1, 8, 5),
        placements=listed,
        at=2,
        fingerprint="pfp0v001x",
        fingerprint_method="all",
    )
    names = [attribute["name"] for attribute in wanted(history)["attributes"]]
    assert "topology.node.k8s.io/numaplacement-metadata" in names


def test_what_init_containers_keep_is_not_among_the_placements(history: History) -> None:
    """The plugin counts the containers of the pods' specs that run, and takes no payload of another
    count.
    """
    history.reserve(pod("a", container("setup", cpus=4, kind="init"), container("c", cpus=3)))
    listed = (
        held("a", 1, 3),
        held("a", 1, 1, container_name="setup"),
        held("b", 0, 1, container_name="setup"),
    )
    history.report(
        zone(0, 8, 7),
        zone(1, 8, 4),
        placements=listed,
        at=2,
        fingerprint="pfp0v001x",
        fingerprint_method="all",
    )
    assert "npv0v001::ve=leb89::cc=2::nn=2::bn=0" in [
        attribute["value"] for attribute in wanted(history)["attributes"]
    ]


def test_a_silent_node_says_since_when_and_is_collected_in_time(history: History) -> None:
    history.n1.expired = True
    since_us = NOW_US - 299 * 1_000_000
    wanted_object = mirroring.wanted(history.n1, since_us, NOW_US, Terms())
    assert wanted_object is not None
    assert wanted_object["metadata"]["annotations"][EXPIRED_SINCE] == "2033-05-18T03:28:21Z"
    assert mirroring.wanted(history.n1, since_us - 2_000_000, NOW_US, Terms()) is None


def test_nodes_that_another_exporter_speaks_for_are_never_mirrored() -> None:
    history = History()
    history.node()
    history.report(zone(0, 8), placements=None, source="nrt")
    assert mirroring.wanted(history.n1, 0, NOW_US, Terms()) is None


@pytest.mark.parametrize("missing", ["node", "report"])
def test_without_a_node_object_or_a_report_there_is_no_object(missing: str) -> None:
    history = History()
    if missing == "report":
        history.node()
    else:
        history.report(zone(0, 8))
    assert mirroring.wanted(history.n1, 0, NOW_US, Terms()) is None
    assert mirroring.wanted(None, 0, NOW_US, Terms()) is None


def test_only_what_differs_is_written_over_the_version_that_was_seen(history: History) -> None:
    wanted_object = wanted(history)
    ours = Present("u", "7", True, content(wanted_object))
    assert mirroring.step(wanted_object, None) == Write(wanted_object, force=False)
    assert mirroring.step(wanted_object, ours) is None
    history.reserve(pod("a", cpus=3))
    changed = mirroring.step(wanted(history), ours)
    assert isinstance(changed, Write)
    assert changed.force
    assert changed.object["metadata"]["resourceVersion"] == "7"
    assert mirroring.step(None, ours) == Remove("u", "7")
    assert mirroring.step(None, None) is None


def test_anothers_object_is_neither_written_nor_deleted(history: History) -> None:
    theirs = Present("u", "7", False)
    assert mirroring.step(wanted(history), theirs) is None
    assert mirroring.step(None, theirs) is None


def test_an_exporter_that_replaces_the_attributes_takes_the_object_over(history: History) -> None:
    wanted_object = wanted(history)
    assert not is_mirrored(
        {**wanted_object, "attributes": [{"name": "topologyManagerPolicy", "value": "none"}]}
    )


def test_what_a_server_adds_is_no_difference(history: History) -> None:
    wanted_object = wanted(history)
    metadata = {
        **wanted_object["metadata"],
        "uid": "u",
        "managedFields": [],
        "annotations": {**wanted_object["metadata"]["annotations"], "own": "x"},
    }
    assert content({**wanted_object, "metadata": metadata}) == content(wanted_object)
