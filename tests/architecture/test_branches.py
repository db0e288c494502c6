"""The measured rooms exist and the printed branches add up, because a renamed room would go
unmeasured silently.
"""

from __future__ import annotations

import tomllib
from typing import Any

from tests.fixtures.branches import PROJECT, TESTS, TRACED, told


def of(covered: int, branches: int, missing: list[list[int]]) -> dict[str, Any]:
    return {
        "summary": {"covered_branches": covered, "num_branches": branches},
        "missing_branches": missing,
    }


FILES = {
    "services/a/x.py": of(9, 10, [[7, 9]]),
    "services/a/y.py": of(1, 10, [[2, 3]]),
    "shared/b/z.py": of(0, 0, []),
}


def test_traced_folders_and_measured_rooms_exist() -> None:
    measured = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["coverage"]["run"][
        "source"
    ]
    assert [name for name in measured if not (PROJECT / name).is_dir()] == []
    assert [name for name in TRACED if not (TESTS / name).is_dir()] == []
    assert {
        "services/topology_store",
        "services/embedded",
        "shared/runtime",
        "shared/eventlog",
    } <= set(measured)


def test_rooms_are_summed_up_and_files_that_are_mostly_not_run_are_named() -> None:
    share, lines = told(FILES, by_room=True)
    assert share == 50.0
    assert [line.split("% ")[1].strip() for line in lines[:3]] == [
        "services/a",
        "shared/b",
        "services/a/y.py: few",
    ]


def test_the_report_names_files_and_lines_whose_branches_were_not_taken() -> None:
    _, lines = told(FILES, by_room=False)
    assert [line.split("% ")[1].strip() for line in lines[:2]] == [
        "services/a/x.py: 7",
        "services/a/y.py: 2",
    ]
