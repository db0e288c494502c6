"""Stream names. Two a node, so that reports never conflict with reservations, and one a pod (design
section 3).

A release passes over streams of a kind that it does not know (`setting_aside`), so that the release
before can live beside it and be gone back to: a new fact that the release before may do without
goes on a kind of stream of its own, `<kind>/<name>`. One that it must not miss goes on a stream
that it knows, which it then sets aside.
"""

from __future__ import annotations

LOG = "log"
DEMAND = "demand"
"""What pods ask for, weighed: of the whole cluster."""

KINDS = frozenset(
    {
        "report",
        "node",
        "pod",
        "volume",
        "claim",
        "namespace",
        "csinode",
        "nomination",
        "deviceclass",
        "listing",
    }
)
"""What this release knows: what stands before the first slash."""


def is_known(stream: str) -> bool:
    """Whether this release must make sense of a stream: all but those of another kind,
    `<kind>/<name>`.
    """
    kind, slash, _ = stream.partition("/")
    return not slash or kind in KINDS


def report(node: str) -> str:
    """The topology-store's stream of one node."""
    return f"report/{node}"


def node(name: str) -> str:
    """Charges, dirty flags, reconciliations and the Kubernetes object of one node."""
    return f"node/{name}"


def listing(kind: str) -> str:
    """Lists of the whole cluster, by what they list."""
    return f"listing/{kind}"


def pod(uid: str) -> str:
    """Everything that happens to one pod, by uid."""
    return f"pod/{uid}"
