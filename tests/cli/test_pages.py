"""Generated pages are up to date."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import msgspec

from services.comparison.cells import Result
from services.comparison.runner import run_cell
from services.comparison.side_by_side import NAMES, cell
from shared.telemetry import agent_names, exporter_names, names
from shared.telemetry.declare import EVENTS

ROOT = Path(__file__).resolve().parents[2]
DECLARED = vars(names) | vars(agent_names) | vars(exporter_names)


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_message_is_on_the_page_of_messages() -> None:
    messages = script("messages")
    assert (ROOT / "docs" / "messages.md").read_text() == messages.page(), "run: make docs"


def test_each_event_is_named_where_it_is_logged() -> None:
    """The page of messages would lack an event whose name is passed on as a value."""
    result = script("messages").logged("debug", "info", "warning", "error", "critical", "exception")
    assert {DECLARED[name] for name in result} >= set(EVENTS)


def test_every_warning_has_a_remedy_of_its_own() -> None:
    warned = {DECLARED[name] for name in script("messages").warned()}
    remedies = {name: EVENTS[name].remedy for name in warned}
    assert {name for name, remedy in remedies.items() if not remedy} == set()
    assert len(set(remedies.values())) == len(remedies), "a remedy belongs to one message"


def test_readme_begins_with_the_numbers_of_the_comparison() -> None:
    comparison, readme = script("readme_comparison"), (ROOT / "README.md").read_text()
    result = comparison.rows((ROOT / "docs" / "compare.jsonl").read_text())
    again = "make it again: python scripts/readme_comparison.py"
    assert comparison.with_block(readme, comparison.block(result)) == readme, again
    assert (ROOT / "docs" / "compare.svg").read_text() == comparison.picture(result), again
    assert readme.index(comparison.BEGIN) < 200


def test_the_page_of_quality_has_the_cells_that_were_played() -> None:
    """Every line can be parsed, and no cell is listed twice."""
    lines = (ROOT / "docs" / "quality.jsonl").read_bytes().splitlines()
    played = [msgspec.json.decode(line, type=Result).cell.key for line in lines]
    assert len(set(played)) == len(played) > 0
    assert (ROOT / "docs" / "quality.md").read_text() == script("quality_page").page(), (
        "make it again: python scripts/quality_page.py"
    )


def test_the_row_of_the_comparison_that_is_ours_is_what_the_code_of_today_does() -> None:
    """The numbers are the same on every machine, so README shows every change of the scheduler."""
    output = msgspec.json.decode((ROOT / "docs" / "compare.jsonl").read_bytes().splitlines()[-1])
    played = run_cell(cell("ledger, proof", zones=2, reports="1"), ROOT)
    again = (
        "make it again: topolog compare --json > docs/compare.jsonl; python "
        "scripts/readme_comparison.py"
    )
    assert output == {
        "row": NAMES[played.cell.row],
        "tasks": played.tasks,
        "ran": played.admitted,
        "rejected": played.rejected,
        "wait_p99_s": played.wait_p99_s,
        "zones_per_pod": played.zones_per_pod,
        "aligned_share": played.aligned_share,
        "infeasible": played.infeasible,
    }, again
    assert played.rejected == played.rejected_after_end, (
        "README says that no rejection could have been foreseen"
    )
