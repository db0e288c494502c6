"""Vectors of the policy in force on a node for a pod (policy_names)."""

from __future__ import annotations

from typing import Any

from shared.owned.policy import combined_policy
from tests.vectors.koordinator import differences_named, label_first, policy_of, reported_policy

KIND = "policy_names"

Json = dict[str, Any]

# The names of a report that Koordinator reads. Others count as no policy in `from_nrt`, and as what
# they name in the policy that results.
_READ = ("BestEffort", "Restricted", "SingleNUMANodePodLevel")


def recognises(doc: Json) -> bool:
    return doc.get("kind") == KIND


deliberate = differences_named


def check(case: Json) -> list[str]:
    expect = case["expect"]
    node = label_first(case["label_policy"], case["nrt_policies"])
    policy = combined_policy(node, policy_of(case["pod_policy"]))
    read = [name for name in case["nrt_policies"] if name in _READ]
    got = {
        "from_nrt": reported_policy(read),
        "node_policy": node,
        "refused": policy is None,
        "policy": policy,
    }
    wanted = {
        "from_nrt": policy_of(expect["from_nrt"]),
        "node_policy": policy_of(expect["node_policy"]),
        "refused": bool(expect["error"]),
        "policy": None if expect["error"] else policy_of(expect["policy"]),
    }
    return [] if got == wanted else [f"ours {got}, recorded {wanted}"]
