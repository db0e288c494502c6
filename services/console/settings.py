"""The console's settings: TOPOLOG_* variables or a YAML/TOML file (TOPOLOG_CONFIG)."""

from __future__ import annotations

from typing import Annotated

import msgspec

from shared.runtime.settings import CommonSettings


class ConsoleSettings(CommonSettings, frozen=True, kw_only=True):
    """`what_if_limit_s` bounds a question of the What-if view, which plays a history in its own
    process; 0 disables the view. `sample_every_s` is the interval between points of the live plots.
    """

    what_if_limit_s: Annotated[float, msgspec.Meta(ge=0, le=3600)] = 120.0
    sample_every_s: Annotated[float, msgspec.Meta(ge=0.1, le=3600)] = 2.0
