"""The pages that say what must always hold agree with each other, and the simulation judges nothing
that they do not name.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
JUDGED = set(
    re.findall(
        r"\b([SL]\d+)(?::| at)",
        "\n".join(path.read_text() for path in (ROOT / "tests" / "simulation").glob("*.py")),
    )
)
PROMISED = re.findall(r"^- ([SL]\d+) ", (ROOT / "ARCHITECTURE.md").read_text(), re.M)
LAST = {kind: max(int(name[1:]) for name in PROMISED if name[0] == kind) for kind in "SL"}


def test_promises_are_numbered_without_a_hole() -> None:
    assert [f"{kind}{number}" for kind in "SL" for number in range(1, LAST[kind] + 1)] == PROMISED


def test_nothing_is_judged_that_is_not_promised() -> None:
    assert JUDGED - {"S0"} <= set(PROMISED), "test_simulation breaks S0, which is none"


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "tests/simulation/checks.py"])
def test_a_page_that_speaks_of_all_promises_speaks_of_the_last_one(page: str) -> None:
    said = re.findall(r"\bS1 to S(\d+)\b(?:[^.,]{0,60}? L1 to L(\d+))?", (ROOT / page).read_text())
    whole = [(safety, liveness) for safety, liveness in said if int(safety) > 3]
    assert whole
    for safety, liveness in whole:
        assert (int(safety), int(liveness or LAST["L"])) == (LAST["S"], LAST["L"])
