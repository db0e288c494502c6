"""The table fits the code and the tests, and the command distinguishes surviving and caught
bugs.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from _pytest.mark.expression import Expression

from tests.mutations.__main__ import BY_TESTS, sample
from tests.mutations.of_simulation import SIMULATED
from tests.mutations.planting import ROOT, copy_to, is_stale, try_one
from tests.mutations.table import TESTED, Mutation


@pytest.mark.parametrize(
    "mutation",
    [*BY_TESTS, *SIMULATED],
    ids=lambda mutation: mutation.name,
)
def test_the_replaced_text_occurs_in_the_code_once(mutation: Mutation) -> None:
    assert not is_stale(mutation), f"{mutation.file} has moved on; give the table its new words"
    assert mutation.old != mutation.new


def test_each_catcher_selects_a_test() -> None:
    """A `-k` that selects nothing is a mutation that no test can notice."""
    catchers = {mutation.catcher for mutation in BY_TESTS}
    files = sorted({word for catcher in catchers for word in shlex.split(catcher) if "/" in word})
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-n", "0", *files]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    tests = [line for line in listed.splitlines() if "::" in line]
    assert {catcher for catcher in catchers if not _selects(catcher, tests)} == set()


def _selects(catcher: str, tests: list[str]) -> bool:
    words = shlex.split(catcher)
    paths = tuple(word for word in words if "/" in word)
    chosen = [test for test in tests if test.startswith(paths)]
    if "-k" not in words:
        return bool(chosen)
    expression = Expression.compile(words[words.index("-k") + 1])

    def matches(test: str) -> bool:
        name = test.rpartition("/")[2].lower()

        def is_part(part: str, /, **_options: object) -> bool:
            return part.lower() in name

        return expression.evaluate(is_part)

    return any(matches(test) for test in chosen)


def test_a_sample_follows_from_the_commit() -> None:
    first, again, other_sample = (sample(TESTED, commit, 12) for commit in ("a", "a", "b"))
    assert first == again != other_sample
    assert len({mutation.name for mutation in first}) == 12


def test_a_bug_is_caught_by_its_test_survives_another_and_is_taken_back(tmp_path: Path) -> None:
    copy_to(tmp_path)
    bug = next(mutation for mutation in TESTED if mutation.name == "a hole is read over")
    source_before = (tmp_path / bug.file).read_text()
    assert try_one(bug, tmp_path)[0] == "caught"
    assert (
        try_one(bug._replace(catcher="tests/eventlog/test_snapshots.py"), tmp_path)[0] == "survived"
    )
    assert try_one(bug._replace(catcher="tests/no_such_file.py"), tmp_path)[0] == "unclear"
    assert try_one(bug._replace(old="no such words"), tmp_path)[0] == "stale"
    assert try_one(bug, tmp_path, timeout_s=0.01)[0] == "timed out"
    assert (tmp_path / bug.file).read_text() == source_before
