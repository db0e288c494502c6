"""Every node and every pending pod has one cell, the same by the settings of every cell."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from shared.domain.cells import (
    HOPS,
    MOST_HOPS,
    OWNER,
    WANTED,
    Cell,
    Cells,
    Route,
    cells_of,
    highest,
)

A, B, C = Cell("a"), Cell("b", nodes={"pool": "b"}, pods={"team": "b"}), Cell("c")
ALL = (A, B, C)
NAMES = st.text("ab-01", max_size=8)
LABELS = st.dictionaries(
    st.sampled_from(["pool", "team", WANTED, OWNER]), st.sampled_from(["a", "b", "c", "x"])
)


def pod(uid: str = "u", labels: Any = None, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"uid": uid, "namespace": "d", "labels": labels or {}}, "spec": spec}


@given(NAMES, LABELS, LABELS)
def test_one_cell_has_a_node_and_one_has_a_pod(
    name: str, labels: dict[str, str], selector: dict[str, str]
) -> None:
    cells = [Cells(cell.name, ALL) for cell in ALL]
    assert sum(each.has_node(name, labels) for each in cells) <= 1
    assert len({each.of_node(name, labels) for each in cells}) == 1
    (route,) = {each.route(pod(name, labels, nodeSelector=selector)) for each in cells}
    assert route.cell in ("a", "b", "c")


def test_selectors_come_before_the_hash() -> None:
    cells = Cells("a", ALL)
    assert cells.of_node("n", {"pool": "b"}) == "b"
    assert cells.of_node("n", {"pool": "b", WANTED: "c"}) == "c"
    assert cells.route(pod(labels={"team": "b"})) == Route("b")
    assert cells.route(pod(nodeSelector={"pool": "b", "disk": "ssd"})) == Route("b")
    assert cells.route(pod(labels={"team": "b", WANTED: "c"})) == Route("c")
    assert {cells.of_node(f"n{at}", {}) for at in range(40)} == {"a", "c"}
    assert {cells.route(pod(f"u{at}")).cell for at in range(40)} == {"a", "c"}


def test_the_first_cell_reports_a_pod_that_fits_none() -> None:
    for cells in (Cells("a", ALL), Cells("b", ALL)):
        problem = "topolog.io/cell is 'x', and the cells are a, b, c"
        assert cells.route(pod(labels={WANTED: "x"})) == Route("a", problem)
    alone = Cells("b", (B,))
    assert alone.route(pod()) == Route("b", "no cell takes pods with these labels")
    assert alone.of_node("n", {}) == ""


def test_a_gang_goes_to_one_cell_as_a_whole() -> None:
    keys = {
        "gang.scheduling.koordinator.sh/name": "g",
        "gang.scheduling.koordinator.sh/min-available": "3",
    }
    for made in (
        [pod(f"u{at}") for at in range(20)],
        [pod(f"u{at}", schedulingGroup={"podGroupName": "g"}) for at in range(20)],
    ):
        if "schedulingGroup" not in made[0]["spec"]:
            for member in made:
                member["metadata"]["annotations"] = keys
        assert len({Cells("a", ALL).route(member).cell for member in made}) == 1


@given(st.lists(NAMES, min_size=2, unique=True), NAMES)
def test_a_cell_that_goes_moves_only_its_own_keys(names: list[str], key: str) -> None:
    chosen = highest(names, key)
    gone = next(name for name in names if name != chosen)
    assert highest([name for name in names if name != gone], key) == chosen


def test_settings_name_this_cell_and_each_once() -> None:
    assert cells_of("", ()) is None
    assert cells_of("a", ALL) == Cells("a", ALL)
    assert "TOPOLOG_CELL is 'z'" in str(cells_of("z", ALL))
    assert "TOPOLOG_CELL is ''" in str(cells_of("", ALL))
    assert "name of its own" in str(cells_of("a", (A, msgspec.structs.replace(B, name="a"))))


HOSTILE = st.one_of(st.none(), st.integers(), st.text(), st.sampled_from(["9" * 30, "-1", "1e3"]))


@given(NAMES, st.integers(0, 500))
def test_a_pod_visits_each_cell_once_a_round_and_waits_longer_in_each_round(
    uid: str, hops: int
) -> None:
    three = Cells("a", (A, Cell("b"), C), wait_s=10.0)
    manifest = pod(uid)
    rounds = []
    for number in range(3):
        manifest["metadata"]["annotations"] = {HOPS: str(hops + number)}
        route = three.route(manifest)
        rounds.append(route.cell)
        assert three.wait_in(route) == 10.0 * 2 ** min((hops + number) // 3, 20)
        assert route.next_cell == three.route(_with_hops(uid, str(hops + number + 1))).cell
    assert sorted(rounds) == ["a", "b", "c"]


def _with_hops(uid: str, hops: object) -> dict[str, Any]:
    manifest = pod(uid)
    manifest["metadata"]["annotations"] = {HOPS: hops}
    return manifest


@given(NAMES, HOSTILE)
def test_any_text_as_hops_names_one_cell(uid: str, hops: object) -> None:
    routes = {Cells(cell.name, ALL).route(_with_hops(uid, hops)) for cell in ALL}
    (route,) = routes
    assert route.cell in ("a", "c")
    assert 0 <= route.hops <= MOST_HOPS
