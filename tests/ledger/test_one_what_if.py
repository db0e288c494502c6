"""Only the ledger computes charges, and modules that add or take charges are named in ADR 1, which
gives the reason.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CHARGING = "shared.ledger.charge", "shared.ledger.charging", "shared.ledger.recompute"
WORKING_OUT = {
    "charge_zones",
    "possible_zones",
    "pending_zones",
    "narrow",
    "widen",
    "landing",
    "ended_of",
    "recompute",
    "could_have_freed",
}
ADDING = {"restore", "subtract"}
ADR = (ROOT / "docs/adr/0001-overlay-outside-the-ledger.md").read_text("utf-8")


def takes(path: Path) -> set[str]:
    """Return the names that the file imports from the ledger, as `module.name`."""
    nodes = [
        node
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ImportFrom)
    ]
    return {f"{node.module}.{alias.name}" for node in nodes for alias in node.names}


@pytest.fixture(scope="module")
def outside() -> dict[Path, set[str]]:
    """Return the names that each file outside the ledger imports from it."""
    return {
        path: takes(path)
        for folder in ("services", "shared")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if path.parent != ROOT / "shared/ledger"
    }


def test_charges_are_worked_out_in_the_ledger_alone(outside: dict[Path, set[str]]) -> None:
    forbidden = {f"{module}.{name}" for module in CHARGING for name in WORKING_OUT}
    assert len(outside) > 400
    assert {
        path.name: imported for path, names in outside.items() if (imported := names & forbidden)
    } == {}


def test_modules_that_add_or_take_charges_are_named_with_the_reason(
    outside: dict[Path, set[str]],
) -> None:
    who = [
        path
        for path, names in outside.items()
        if names & {f"shared.ledger.view.{name}" for name in ADDING}
    ]
    assert len(who) == 6
    assert {path.name for path in who} <= set(re.findall(r"`(?:\w+/)?(\w+\.py)`", ADR))
