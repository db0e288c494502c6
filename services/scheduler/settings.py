"""The scheduler's settings: TOPOLOG_* variables or a YAML/TOML file (TOPOLOG_CONFIG)."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from services.scheduler.extender.settings import ExtenderSettings
from services.scheduler.snapshot.config import CycleConfig
from shared.runtime.settings import CommonSettings

CacheName = Literal["ledger", "overreserve", "discardreserved", "passthrough"]
Positive = Annotated[int, msgspec.Meta(ge=1)]


class SchedulerSettings(CommonSettings, frozen=True, kw_only=True):
    """`kubeconfig` is a file, a bare http:// URL, or empty inside a cluster.
    `dirty_after_rejections` is the N of the reserve-plugin design (1 where an upstream cache
    decides); `observe` off makes this process a mere decider. Every `relist_s` the observer lists
    each kind beside its watch, for what neither told. `cache` other than `ledger` places by the
    upstream plugin's cache of that name, `compat: upstream` by the one that its arguments choose,
    defects included. `plugin_config` is a file with the plugin's arguments, alone or in a
    KubeSchedulerConfiguration. `log_limit_gib`: whoever relays warns before the log takes that
    much. `shadow` decides nothing, and compares what others do with what it would do."""

    kubeconfig: str = ""
    scheduler_name: str = "topolog"
    dirty_after_rejections: Positive = 3
    batch_pods: Positive = 200
    observe: bool = True
    relist_s: Annotated[float, msgspec.Meta(ge=1, le=86_400)] = 1800.0
    relay: bool = True
    log_limit_gib: Positive = 20
    lease_ttl_s: Annotated[float, msgspec.Meta(ge=1)] = 5.0
    cycle: CycleConfig = CycleConfig()
    cache: CacheName = "ledger"
    compat: Literal["default", "upstream"] = "default"
    plugin_config: str = ""
    shadow: bool = False
    extender: ExtenderSettings = ExtenderSettings()
