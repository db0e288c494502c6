"""Every path in the recipes of CONTRIBUTING exists, also after a file moved or a test was
renamed.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from shared.events.catalog import CATALOG

ROOT = Path(__file__).resolve().parents[2]
RECIPES = (ROOT / "CONTRIBUTING.md").read_text()
PATHS = sorted(
    {name for name in re.findall(r"[`\[]([\w./<>-]+/[\w./<>-]*)[`\]]", RECIPES) if "<" not in name}
)


@pytest.mark.parametrize("path", PATHS)
def test_what_a_recipe_names_exists(path: str) -> None:
    assert (ROOT / path).exists()


def test_recipes_name_files() -> None:
    assert len(PATHS) > 8


def test_the_recipe_for_an_event_names_every_area_and_every_vector() -> None:
    for name, entry in CATALOG.items():
        assert "<area>" in RECIPES
        area = (ROOT / "shared/events" / f"{entry.area}_events.py").read_text()
        assert f"class {name}(" in area
        assert (ROOT / "tests/events/vectors" / f"{name}.{entry.schema}.json").exists()
