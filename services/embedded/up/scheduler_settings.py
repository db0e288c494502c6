"""The settings by which the schedulers of a data folder decide, for commands that decide again."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

_FILE = "scheduler.json"
_CONFIG = "TOPOLOG_CONFIG"
_PREFIX = "TOPOLOG_CYCLE_"
_OTHERS = (
    "TOPOLOG_CACHE",
    "TOPOLOG_COMPAT",
    "TOPOLOG_DIRTY_AFTER_REJECTIONS",
    "TOPOLOG_PLUGIN_CONFIG",
    "TOPOLOG_SCHEDULER_NAME",
)


def write_settings(folder: Path, environment: Mapping[str, str]) -> None:
    """Save the variables that decide."""
    variables = {
        name: value
        for name, value in sorted(environment.items())
        if name.startswith(_PREFIX) or name in _OTHERS
    }
    if environment.get(_CONFIG):
        variables[_CONFIG] = os.path.abspath(environment[_CONFIG])
    temporary = folder / f".{_FILE}.new"
    temporary.write_text(json.dumps(variables))
    temporary.replace(folder / _FILE)


def read_settings(folder: Path) -> dict[str, str]:
    """Return the saved variables, {} if there are none that can be read."""
    try:
        variables = json.loads((folder / _FILE).read_text())
    except (OSError, ValueError):
        return {}
    return variables if isinstance(variables, dict) else {}
