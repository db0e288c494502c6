"""Stream names. Two a node, so that reports never conflict with reservations, and one a pod (design section 3)."""

from __future__ import annotations

LOG = "log"
DEMAND = "demand"
"""What pods ask for, weighed: of the whole cluster."""


def report(node: str) -> str:
    """The topology-store's stream of one node."""
    return f"report/{node}"


def node(name: str) -> str:
    """Charges, dirty flags, reconciliations and the Kubernetes object of one node."""
    return f"node/{name}"


def pod(uid: str) -> str:
    """Everything that happens to one pod, by uid."""
    return f"pod/{uid}"
