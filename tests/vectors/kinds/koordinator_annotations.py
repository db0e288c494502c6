"""Vectors of the annotations that a placed pod gets (annotations)."""

from __future__ import annotations

from typing import Any

from shared.domain.quantity import Format, amount, parse
from shared.domain.refusal import Refusal
from shared.owned.admit import admit
from shared.owned.free import Free, free_of
from shared.owned.values import Allocation
from tests.owned.annotations import annotations_of
from tests.vectors.koordinator import (
    differences_named,
    holding_of,
    node_of,
    request_of,
    with_machines,
)

KIND = "annotations"

Json = dict[str, Any]

# What is the same in all cases of this file.
_NODE = {
    "has_cpu_topology": True,
    "kubelet_full_pcpus_only": False,
    "max_ref_count": 1,
    "nrt_policies": [],
    "numa_allocate_strategy_label": "",
    "reserved_cpus": "",
}
_CONFIG = {
    "numa_scoring_strategy": "LeastAllocated",
    "numa_scoring_weights": {"cpu": 1, "memory": 1},
}
_POD = {"priority_class": "", "numa_topology_policy": "", "single_numa_node_exclusive": ""}


def recognises(doc: Json) -> bool:
    return doc.get("kind") == KIND


cases = with_machines
deliberate = differences_named


def check(case: Json) -> list[str]:
    zones = [
        {"zone": zone["zone"], "resources": _amounts(zone["resources"])} for zone in case["zones"]
    ]
    node = node_of({**_NODE, **case, "zones": zones}, _CONFIG, case["nesting"])
    pod = {**_POD, **case["pod_spec"], "qos": case["qos"], "requests": _amounts(case["requests"])}
    free = free_of(node, map(holding_of, case["ledger"]))
    outcome = admit(node, free, request_of(pod, "FullPCPUs"))
    got = None
    if not isinstance(outcome, Refusal):
        written = annotations_of(
            outcome, case["annotations_before"], _notations(case, free, outcome)
        )
        got = {**case["annotations_before"], **written}
    wanted = [case["expect"]["annotations_after"]]
    if "annotations_after_fixed" in case:
        wanted.append(case["annotations_after_fixed"])
    return [] if got in wanted else [f"ours {got}, recorded {wanted}"]


def _amounts(texts: dict[str, str]) -> dict[str, int]:
    return {name: amount(name, text) for name, text in texts.items()}


def _notations(case: Json, free: Free, allocation: Allocation) -> dict[tuple[int, str], Format]:
    """Return the notation of each amount: that of the request, or of a zone that gave all that it
    had free.
    """
    texts = {zone["zone"]: zone["resources"] for zone in case["zones"]}
    notations = {}
    for record in allocation.holding.zones:
        for name, number in record.amounts.items():
            is_all = number == free.amounts[record.zone][name]
            text = texts[record.zone][name] if is_all else case["requests"][name]
            notations[record.zone, name] = parse(text).format
    return notations
