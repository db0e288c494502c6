"""Settings of scheduling decisions, as values."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from shared.domain.policies import NONE, Policy

Precedence = Literal["nrt-first", "label-first"]
OnMissing = Literal["refuse", "pass"]
Prediction = Literal["off", "observe", "trust"]
# Koordinator's default of a gang's waiting time.
GANG_TIMEOUT_S = 600.0
# A year.
MOST_AFTER_S = 31_536_000


class Provenance(msgspec.Struct, frozen=True):
    """Fingerprints of the configuration and the code that decide, 16 hex digits each; empty if they
    were not computed.
    """

    config: str = ""
    code: str = ""


class HoldSettings(msgspec.Struct, frozen=True):
    """`after_s`: how long a pod may wait before a node is held for it, 0 for ever; the pod's
    annotation goes first. `share`: nodes that may be held at once, in percent of all nodes, at
    least one; 0 holds none.
    """

    after_s: Annotated[float, msgspec.Meta(ge=0, le=MOST_AFTER_S)] = 0.0
    share: Annotated[int, msgspec.Meta(ge=0, le=100)] = 5


class CycleConfig(msgspec.Struct, frozen=True):
    """Settings of the scheduling cycle.

    `policy_precedence`: whether the report's policy or the node label decides if both are set;
    `nrt-first` is safe with a kubelet's Topology Manager. `default_policy` is the topology policy
    of nodes for which neither names one. `weights` by resource count in scores, 1
    if none is named (upstream: `scoringStrategy.resources`). If bounds do not decide, a pod may use
    `steps_node` admissions of the kubelet search on one node, `steps_last_resort` on one node if no
    other takes it, and then `steps_pod` in all. `max_shapes` limits the pod classes that are kept,
    `near_misses` the refusals that an outcome carries. `prediction: observe` records where the
    kubelet model expects each reservation, `trust` also charges it only there. `rank_by_zones`:
    nodes on which the kubelet model predicts fewer, or nearer, zones come first, whatever they
    score. `unpinned` are resources (`*` stands for any text) that no kubelet pins if its
    NodeResourceTopology object lists them in no zone. `topology_layers` has the label key of nodes
    for each layer that gangs name, as `{"BlockLayer": "network.topology.nvidia.com/block"}`; a
    layer without one is a label key.
    """

    on_missing_report: OnMissing = "refuse"
    policy_precedence: Precedence = "nrt-first"
    default_policy: Policy = NONE
    strategy: str = "KeepRoom"
    weights: dict[str, int] = {}
    steps_node: Annotated[int, msgspec.Meta(ge=1)] = 32
    steps_last_resort: int = 1024
    steps_pod: int = 1024
    max_shapes: int = 256
    near_misses: int = 3
    threads_per_core: int = 2
    prediction: Prediction = "observe"
    rank_by_zones: bool = True
    unpinned: tuple[str, ...] = ("memory", "hugepages-*", "*/*")
    topology_layers: dict[str, str] = {}
