"""What an operator may choose about deciding. Values only."""

from __future__ import annotations

from typing import Literal

import msgspec

Precedence = Literal["nrt-first", "label-first"]
OnMissing = Literal["refuse", "pass"]
Prediction = Literal["off", "observe", "trust"]


class Provenance(msgspec.Struct, frozen=True):
    """Fingerprints of the configuration and the code that decide, 16 hex digits each; empty where
    nobody computed them.
    """

    config: str = ""
    code: str = ""


class CycleConfig(msgspec.Struct, frozen=True):
    """`policy_precedence`: whether the report's policy or the node label decides when both are set;
    `nrt-first` is the safe one beside a kubelet with a Topology Manager. `steps_node` is how many
    admissions are looked at for one pod on one node where bounds do not tell, `steps_last_resort`
    how many when no other node takes it, `steps_pod` how many then in all. `max_shapes` bounds the
    pod shapes whose verdicts are kept. `near_misses` is how many refusals a verdict carries.
    `weights` by resource count in scores, 1 where none is named (`scoringStrategy.resources`
    upstream). `prediction: observe` records where the kubelet model expects each reservation,
    `trust` also charges it only there, `off` does neither.
    """

    on_missing_report: OnMissing = "refuse"
    policy_precedence: Precedence = "nrt-first"
    strategy: str = "KeepRoom"
    weights: dict[str, int] = {}
    steps_node: int = 32
    steps_last_resort: int = 256
    steps_pod: int = 1024
    max_shapes: int = 256
    near_misses: int = 3
    threads_per_core: int = 2
    prediction: Prediction = "observe"
