"""The topology-store's settings: TOPOLOG_* variables or a YAML/TOML file (TOPOLOG_CONFIG)."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from services.topology_store.mirroring import Pessimism
from shared.kube.koordlet import MemoryPolicy
from shared.runtime.settings import CommonSettings

Seconds = Annotated[float, msgspec.Meta(gt=0)]


class TopologyStoreSettings(CommonSettings, frozen=True, kw_only=True):
    """With a `cell`, reports of nodes that are not in its log are ignored, because they are of
    other cells. `report_max_age_s` is three exporter intervals by default. `lease_ttl_s` is the
    lease of the silence watch and of the mirror. `reports` is the source of reports: `bus`
    (Topolog's exporters), `nrt` (NodeResourceTopology objects of other exporters, read with
    `kubeconfig`) or `both`, where a node's own exporter wins. `mirror` writes
    NodeResourceTopology objects for other consumers; with `auto` only if the definition is
    installed.

    `mirror_pessimism` is where an unconfirmed pod is subtracted: `ledger` in every zone where it
    may land, `overreserve` in every zone, `none` nowhere. Each node is written at most once in
    `mirror_interval_s`, all together `mirror_writes_per_s` times a second. The object of a
    silent node is kept for `mirror_keep_expired_s`. `startup_taint` is the key of a taint that
    is removed from nodes that have reported. `fulfil_reservations` writes the status of
    Koordinator's Reservation objects with Topolog's scheduler name.

    `koordlet_memory_policy` is the Memory Manager's policy on nodes that koordlet reports. With
    `auto` it is None if the CPU Manager is none, and otherwise unknown."""

    cell: str = ""
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
    fulfil_reservations: bool = False
    koordlet_memory_policy: MemoryPolicy = "auto"
