"""The table fits the code, and the command tells a survivor from a bug that was caught."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutations.of_kubernetes import KUBERNETES
from tests.mutations.of_simulation import SIMULATED
from tests.mutations.planting import copy_to, is_stale, try_one
from tests.mutations.table import TESTED, Mutation


@pytest.mark.parametrize(
    "mutation", [*TESTED, *KUBERNETES, *SIMULATED], ids=lambda mutation: mutation.name
)
def test_what_is_to_be_replaced_stands_in_the_code_once(mutation: Mutation) -> None:
    assert not is_stale(mutation), f"{mutation.file} has moved on; give the table its new words"
    assert mutation.old != mutation.new


def test_a_bug_is_caught_by_its_test_survives_another_and_is_taken_back(tmp_path: Path) -> None:
    copy_to(tmp_path)
    bug = next(mutation for mutation in TESTED if mutation.name == "a hole is read over")
    before = (tmp_path / bug.file).read_text()
    assert try_one(bug, tmp_path)[0] == "caught"
    assert (
        try_one(bug._replace(catcher="tests/eventlog/test_snapshots.py"), tmp_path)[0] == "survived"
    )
    assert try_one(bug._replace(catcher="tests/no_such_file.py"), tmp_path)[0] == "unclear"
    assert try_one(bug._replace(old="no such words"), tmp_path)[0] == "stale"
    assert (tmp_path / bug.file).read_text() == before
