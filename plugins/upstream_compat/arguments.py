"""The plugin's configuration arguments as a value, and which cache they choose.

Names, values and defaults are those of `NodeResourceTopologyMatchArgs`
(kubescheduler.config.k8s.io/v1, scheduler-plugins 903da7df). Reading them from a document is
`arguments_reading`; this module must not know YAML or paths.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from plugins.upstream_compat.cache import Cache
from plugins.upstream_compat.discardreserved import DiscardReserved
from plugins.upstream_compat.fingerprint import InformerMode, ResyncMethod
from plugins.upstream_compat.foreign import Detection, Profiles
from plugins.upstream_compat.nrt import Nrt
from plugins.upstream_compat.overreserve import OverReserve, Settings
from plugins.upstream_compat.passthrough import Passthrough

CacheName = Literal["passthrough", "discardreserved", "overreserve"]
ResyncScope = Literal["All", "OnlyResources"]
PreemptionMode = Literal["Disabled", "Enabled"]
StrategyName = Literal["MostAllocated", "BalancedAllocation", "LeastAllocated", "LeastNUMANodes"]


class Arguments(msgspec.Struct, frozen=True):
    """The arguments of one profile, with defaults. `weights` are by resource name, each at least
    1.
    """

    strategy: StrategyName = "LeastAllocated"
    weights: dict[str, int] = msgspec.field(default_factory=lambda: {"cpu": 1, "memory": 1})
    cache_resync_period_s: int = 0
    discard_reserved_nodes: bool = False
    foreign_pods_detect: Detection = "All"
    resync_method: ResyncMethod = "Autodetect"
    informer_mode: InformerMode = "Dedicated"
    resync_scope: ResyncScope = "All"
    preemption_mode: PreemptionMode = "Disabled"

    @property
    def cache(self) -> CacheName:
        """The cache that the arguments select, in upstream's order of priority; passthrough by
        default.
        """
        if self.discard_reserved_nodes:
            return "discardreserved"
        return "overreserve" if self.cache_resync_period_s > 0 else "passthrough"


def new_cache(
    arguments: Arguments, nrts: Iterable[Nrt], profiles: Profiles, mended: bool = False
) -> Cache:
    """Return the chosen cache at start. OverReserve learns the list `nrts` once and, unless
    `mended`, never again (R8).
    """
    if arguments.cache == "discardreserved":
        return DiscardReserved()
    if arguments.cache == "passthrough":
        return Passthrough()
    settings = Settings(
        detect_foreign=arguments.foreign_pods_detect != "None",
        resync_method=arguments.resync_method,
        informer_mode=arguments.informer_mode,
        watch_attributes=arguments.resync_scope == "All",
        mended=mended,
    )
    return OverReserve(nrts, profiles, settings)
