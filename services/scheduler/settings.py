"""The scheduler's settings: TOPOLOG_* variables or a YAML/TOML file (TOPOLOG_CONFIG)."""

from __future__ import annotations

from typing import Annotated

import msgspec

from services.scheduler.cycle.config import CycleConfig
from shared.runtime.settings import CommonSettings

Positive = Annotated[int, msgspec.Meta(ge=1)]


class SchedulerSettings(CommonSettings, frozen=True, kw_only=True):
    """`kubeconfig` is a file, a bare http:// URL, or empty inside a cluster. `dirty_after_rejections` is the N of the
    reserve-plugin design; `observe` off makes this process a mere decider."""

    kubeconfig: str = ""
    scheduler_name: str = "topolog"
    dirty_after_rejections: Positive = 3
    batch_pods: Positive = 100
    observe: bool = True
    relay: bool = True
    lease_ttl_s: Annotated[float, msgspec.Meta(ge=1)] = 5.0
    cycle: CycleConfig = CycleConfig()
