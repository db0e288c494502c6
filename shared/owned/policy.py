"""The policy that is in force for a pod on a node whose zones Topolog chooses.

The report (NodeResourceTopology, by the kubelet), the label of the node and a scheduler-wide
default are asked in this order, or the label first under `label-first`. The first policy
other than none decides. Every spelling is read (`shared.domain.policies.parse`). Koordinator
reads neither names with the suffix of a scope nor the literal `None`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, cast

from shared.domain.policies import NONE, Policy, parse

Precedence = Literal["nrt-first", "label-first"]


class UnknownPolicyError(ValueError):
    """A text that names no policy."""


def policy_of(text: str) -> Policy:
    """Return the policy that a text names. Raises UnknownPolicyError."""
    parsed = parse(text)
    if parsed is None:
        raise UnknownPolicyError(f"unknown topology policy {text!r}")
    return cast(Policy, parsed[0])


def reported_policy(names: Iterable[str]) -> Policy:
    """Return the first policy other than none among the names of a report (`topologyPolicies`).
    Unknown names are no policy.
    """
    parsed = (parse(name) for name in names)
    named = (cast(Policy, name[0]) for name in parsed if name is not None)
    return next((policy for policy in named if policy != NONE), NONE)


def node_policy(
    label: Policy, reported: Policy, default: Policy = NONE, precedence: Precedence = "nrt-first"
) -> tuple[Policy, str]:
    """Return the policy of a node and its source: `report`, `node label` or `default`."""
    sources = [(reported, "report"), (label, "node label"), (default, "default")]
    if precedence == "label-first":
        sources[:2] = reversed(sources[:2])
    return next((source for source in sources if source[0] != NONE), (NONE, "default"))


def combined_policy(node: Policy, pod: Policy | None) -> Policy | None:
    """Return the policy for a pod on a node; None if both name one and they differ.

    A pod with a policy runs on nodes of the same policy and on nodes without one.
    """
    if pod in (None, NONE):
        return node
    return pod if node in (NONE, pod) else None
