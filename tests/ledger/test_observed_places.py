"""Pods that annotations place on nodes whose reports list no pods: they are confirmed if a
fingerprint matches and the annotations are all that is in use.
"""

from __future__ import annotations

from typing import Any

import pytest

from shared.domain.pod import Pod
from shared.domain.report import ZonedAmount
from shared.kubelet.fingerprint import fingerprint
from shared.ledger.what_if import holdings
from tests.ledger.given import History, container, pod, zone


def tell(history: History, names: str, free0: int, free1: int, at: int, **fields: Any) -> None:
    history.report(
        zone(0, 8, free0),
        zone(1, 8, free1),
        at=at,
        source="nrt",
        placements=None,
        fingerprint=fingerprint([("ns", name) for name in names]),
        fingerprint_method="with-exclusive-resources",
        **{"policy": "best-effort", **fields},
    )


def place(history: History, made: Pod, **cpus: int) -> None:
    """The exporter of KAI-Scheduler has annotated the pod: `z1=4` is 4 CPUs in zone 1."""
    amounts = tuple(ZonedAmount("cpu", (int(name[1:]),), n * 1000) for name, n in cpus.items())
    history.seen(made, "n1", phase="Running", placement=amounts)


def two_pods() -> tuple[History, Pod, Pod]:
    history = History()
    tell(history, "", 8, 8, at=1)
    first, second = pod("a", cpus=6), pod("b", cpus=4)
    history.reserve(first)
    history.reserve(second)
    tell(history, "ab", 4, 2, at=2)
    assert history.n1.listed is None
    return history, first, second


def test_pods_are_confirmed_where_their_annotations_say() -> None:
    history, first, second = two_pods()
    place(history, first, z1=6)
    assert history.n1.listed is None
    place(history, second, z0=4)
    charges = history.n1.charges
    assert (history.free(0), history.free(1)) == (4, 2)
    assert charges[first.uid].confirmed_zones == {1: {"cpu": 6000}}
    assert holdings(history.n1, charges[second.uid]) == {0: {"cpu": 4000}}


@pytest.mark.parametrize("wrong", [{"z0": 6}, {"z1": 4}, {"z1": 5, "z0": 1}, {"z7": 6}])
def test_annotations_that_do_not_explain_the_report_confirm_nothing(wrong: dict[str, int]) -> None:
    history, first, second = two_pods()
    place(history, second, z0=4)
    place(history, first, **wrong)
    assert history.n1.listed is None
    assert not history.n1.charges[first.uid].confirmed


def test_an_annotation_that_covers_less_than_its_pod_demands_confirms_nothing() -> None:
    history, first, second = two_pods()
    tell(history, "ab", 2, 4, at=3)
    place(history, first, z1=4)
    place(history, second, z0=6)
    assert history.n1.listed is None


def test_what_else_is_in_use_confirms_nothing() -> None:
    history, first, second = two_pods()
    tell(history, "ab", 4, 1, at=3)
    place(history, first, z1=6)
    place(history, second, z0=4)
    assert history.n1.listed is None


def test_a_report_without_match_keeps_the_placements_and_the_end_of_a_pod_frees_its_zone() -> None:
    history, first, second = two_pods()
    place(history, first, z1=6)
    place(history, second, z0=4)
    history.end(first)
    assert (history.free(0), history.free(1)) == (4, 8)
    tell(history, "b", 4, 8, at=3)
    assert (history.free(0), history.free(1)) == (4, 8)
    assert history.n1.ended == {}
    late = pod("c", cpus=2)
    history.reserve(late)
    tell(history, "bc", 4, 6, at=4)
    assert history.n1.charges[second.uid].confirmed
    assert not history.n1.charges[late.uid].confirmed
    place(history, late, z1=2)
    assert history.n1.charges[late.uid].confirmed


def test_containers_have_names_if_the_pod_is_in_one_zone() -> None:
    history = History()
    tell(history, "", 8, 8, at=1)
    made = pod("a", container("x", 2), container("y", 3))
    history.reserve(made)
    tell(history, "a", 8, 3, at=2)
    place(history, made, z1=5)
    listed = (history.n1.listed or {})["ns/a"]
    assert [(p.container, p.held[0].zones, p.held[0].amount) for p in listed] == [
        ("x", (1,), 2000),
        ("y", (1,), 3000),
    ]


def test_nodes_that_list_their_pods_do_not_need_annotations() -> None:
    history = History()
    history.report(zone(0, 8), zone(1, 8))
    made = pod("a", cpus=4)
    history.reserve(made)
    place(history, made, z1=4)
    assert not history.n1.charges[made.uid].confirmed
