"""The topology-store's settings: TOPOLOG_* variables or a YAML/TOML file (TOPOLOG_CONFIG)."""

from __future__ import annotations

from typing import Annotated

import msgspec

from shared.runtime.settings import CommonSettings

Seconds = Annotated[float, msgspec.Meta(gt=0)]


class TopologyStoreSettings(CommonSettings, frozen=True, kw_only=True):
    """`report_max_age_s` is three exporter intervals by default. `mirror` writes NodeResourceTopology objects through
    `kubeconfig`, each node at most once in `mirror_interval_s`. `lease_ttl_s` is that of watching for silence."""

    kubeconfig: str = ""
    report_max_age_s: Seconds = 30.0
    lease_ttl_s: Annotated[float, msgspec.Meta(ge=1)] = 5.0
    mirror: bool = False
    mirror_interval_s: Seconds = 5.0
