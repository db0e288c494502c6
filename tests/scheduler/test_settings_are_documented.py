"""docs/settings.md names every setting of the scheduler with its default, every strategy, and no
other.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from services.scheduler.score.runner import STRATEGIES
from services.scheduler.settings import SchedulerSettings
from services.scheduler.snapshot.config import CycleConfig
from shared.runtime.settings import CommonSettings, variables

TEXT = (Path(__file__).parents[2] / "docs" / "settings.md").read_text()
ROWS = {
    found[1]: [cell.strip() for cell in found[2].split("|")]
    for found in re.finditer(r"^\| ?`(\w+)` ?\|(.*)\|$", TEXT, re.M)
}
COMMON = {variable for variable, _ in variables(CommonSettings)}
OURS = [variable for variable, _ in variables(SchedulerSettings) if variable not in COMMON]


def default_of(variable: str) -> Any:
    name = variable.removeprefix("TOPOLOG_").lower()
    if name.startswith("cycle_"):
        return msgspec.to_builtins(CycleConfig())[name.removeprefix("cycle_")]
    if name.startswith("extender_"):
        return msgspec.to_builtins(SchedulerSettings().extender)[name.removeprefix("extender_")]
    if name.startswith("hold_"):
        return msgspec.to_builtins(SchedulerSettings().hold)[name.removeprefix("hold_")]
    return msgspec.to_builtins(SchedulerSettings())[name]


@pytest.mark.parametrize("variable", OURS)
def test_a_setting_is_documented_with_its_default(variable: str) -> None:
    assert variable in ROWS
    expected = default_of(variable)
    expected = ",".join(expected) if isinstance(expected, list | tuple) else expected
    shown = ROWS[variable][1]
    assert (
        shown in ("none", "in the cluster") if expected == "" else shown == f"`{_text(expected)}`"
    )


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def test_nothing_is_documented_that_does_not_exist() -> None:
    assert {name for name in ROWS if name.startswith("TOPOLOG_")} == set(OURS)


def test_every_strategy_is_documented() -> None:
    section = TEXT.split("## Strategies")[1].split("## ")[0]
    assert set(re.findall(r"^\| ?`(\w+)` ?\|", section, re.M)) == set(STRATEGIES)
