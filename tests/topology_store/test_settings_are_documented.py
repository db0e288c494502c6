"""docs/noderesourcetopology.md names every setting of the topology-store with its default, and no
other.
"""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from services.topology_store.settings import TopologyStoreSettings
from shared.runtime.settings import CommonSettings, variables

TEXT = (Path(__file__).parents[2] / "docs" / "noderesourcetopology.md").read_text()
ROWS = {
    row[1]: row[2].split("|")[1].strip()
    for row in re.finditer(r"^\| ?`(TOPOLOG_\w+)` ?\|(.*)\|$", TEXT, re.M)
}
COMMON = {variable for variable, _ in variables(CommonSettings)}
OURS = {variable for variable, _ in variables(TopologyStoreSettings)} - COMMON


def test_every_setting_and_no_other_is_documented() -> None:
    assert set(ROWS) == OURS


@pytest.mark.parametrize("variable", sorted(OURS))
def test_a_setting_is_documented_with_its_default(variable: str) -> None:
    default = msgspec.to_builtins(TopologyStoreSettings())[
        variable.removeprefix("TOPOLOG_").lower()
    ]
    assert ROWS[variable] in ((f"`{default}`",) if default else ("in the cluster", "none"))
