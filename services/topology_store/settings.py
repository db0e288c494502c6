"""The topology-store's settings: TOPOLOG_* variables or a YAML/TOML file (TOPOLOG_CONFIG)."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from services.topology_store.mirroring import Pessimism
from shared.runtime.settings import CommonSettings

Seconds = Annotated[float, msgspec.Meta(gt=0)]


class TopologyStoreSettings(CommonSettings, frozen=True, kw_only=True):
    """`report_max_age_s` is three exporter intervals by default. `lease_ttl_s` is that of watching
    for silence and of the mirror. `reports` says where reports come from: `bus` (Topolog's
    exporters), `nrt` (NodeResourceTopology objects of other exporters, through `kubeconfig`) or
    `both`, where a node's own exporter wins. `mirror` writes NodeResourceTopology objects for other
    consumers: `auto` where the definition is installed.

    `mirror_pessimism` says what they take off for pods that no report proves yet: `ledger` every
    zone where each may land, `overreserve` every zone, `none` nothing. Each node is written at most
    once in `mirror_interval_s`, all of them together `mirror_writes_per_s` times a second; the
    object of a silent node is kept for `mirror_keep_expired_s`. `startup_taint` is the key of a
    taint that is taken from nodes that have reported."""

    kubeconfig: str = ""
    report_max_age_s: Seconds = 30.0
    lease_ttl_s: Annotated[float, msgspec.Meta(ge=1)] = 5.0
    reports: Literal["bus", "nrt", "both"] = "both"
    mirror: Literal["auto", "true", "false"] = "auto"
    mirror_pessimism: Pessimism = "ledger"
    mirror_interval_s: Seconds = 5.0
    mirror_writes_per_s: Seconds = 50.0
    mirror_keep_expired_s: Seconds = 300.0
    startup_taint: str = ""
