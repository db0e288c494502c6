"""The policy that is in force for a pod on a node whose zones Topolog chooses.

The policy of the node (report, label, default setting) is the caller's to find.
"""

from __future__ import annotations

from shared.domain.policies import NONE, Policy


def combined_policy(node: Policy, pod: Policy | None) -> Policy | None:
    """Return the policy for a pod on a node; None if both name one and they differ.

    A pod with a policy runs on nodes of the same policy and on nodes without one.
    """
    if pod in (None, NONE):
        return node
    return pod if node in (NONE, pod) else None
