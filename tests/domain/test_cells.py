"""Every node and every pending pod has one cell, the same by the settings of every cell."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from shared.domain.cells import OWNER, WANTED, Cell, Cells, cells_of, highest

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
    routes = {each.of_pod(pod(name, labels, nodeSelector=selector)) for each in cells}
    ((cell, _problem),) = routes
    assert cell in ("a", "b", "c")


def test_selectors_come_before_the_hash() -> None:
    cells = Cells("a", ALL)
    assert cells.of_node("n", {"pool": "b"}) == "b"
    assert cells.of_node("n", {"pool": "b", WANTED: "c"}) == "c"
    assert cells.of_pod(pod(labels={"team": "b"})) == ("b", "")
    assert cells.of_pod(pod(nodeSelector={"pool": "b", "disk": "ssd"})) == ("b", "")
    assert cells.of_pod(pod(labels={"team": "b", WANTED: "c"})) == ("c", "")
    assert {cells.of_node(f"n{at}", {}) for at in range(40)} == {"a", "c"}
    assert {cells.of_pod(pod(f"u{at}"))[0] for at in range(40)} == {"a", "c"}


def test_the_first_cell_reports_a_pod_that_fits_none() -> None:
    for cells in (Cells("a", ALL), Cells("b", ALL)):
        cell, problem = cells.of_pod(pod(labels={WANTED: "x"}))
        assert (cell, problem) == ("a", "topolog.io/cell is 'x', and the cells are a, b, c")
    alone = Cells("b", (B,))
    assert alone.of_pod(pod()) == ("b", "no cell takes pods with these labels")
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
        assert len({Cells("a", ALL).of_pod(member)[0] for member in made}) == 1


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
