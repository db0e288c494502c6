"""The console's settings: TOPOLOG_* variables or a YAML/TOML file (TOPOLOG_CONFIG)."""

from __future__ import annotations

from typing import Annotated

import msgspec

from services.scheduler.snapshot.config import CycleConfig
from shared.runtime.settings import CommonSettings


class ConsoleSettings(CommonSettings, frozen=True, kw_only=True):
    """`what_if_limit_s` bounds a question of the What-if view, which plays a history in its own
    process; 0 disables the view. `sample_every_s` is the interval between points of the live plots.
    `cells_file` has a line CELL: DATABASE_URL for each cell; all are shown.
    `cycle` is to be that of the schedulers; answers to "why not" and about room depend on it.
    """

    what_if_limit_s: Annotated[float, msgspec.Meta(ge=0, le=3600)] = 120.0
    cells_file: str = ""
    cycle: CycleConfig = CycleConfig()
    sample_every_s: Annotated[float, msgspec.Meta(ge=0.1, le=3600)] = 2.0
