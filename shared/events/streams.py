"""Stream names.

1. A node has two streams, so that reports never conflict with reservations, and a pod has one.

2. A release skips streams of a kind that it does not know (`shared.events.quarantine`), so that
   two releases can work on one log and an update can be rolled back. An event that the previous
   release may ignore goes on a kind of stream of its own, `<kind>/<name>`. An event that it must
   not miss goes on a stream that it knows, which it then quarantines.
"""

from __future__ import annotations

from shared.domain.gang import APIS

LOG = "log"
# Demand classes and their weights, of the whole cluster.
DEMAND = "demand"
# Gangs that were rolled back, of the whole cluster.
GANGS = "gang/rolled-back"

# The kinds that this release knows: the part before the first slash.
KINDS: frozenset[str] = frozenset(
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
        "devices",
        "hold",
        "gang",
        "listing",
        *APIS,
    }
)


# Kinds of streams whose events restrict the whole cluster: lists after a restore, and the
# room of pods that other schedulers have nominated.
SAFETY_KINDS = frozenset({"listing", "nomination"})


def carries_safety(stream: str) -> bool:
    """Return whether an unreadable event of this stream may forbid any decision. A quarantine of
    such a stream is not enough, because it belongs to no single node or pod. An event that every
    release must obey goes on `log`.
    """
    return stream == LOG or stream.partition("/")[0] in SAFETY_KINDS


def is_known(stream: str) -> bool:
    """Return True if this release must be able to read the stream: all except other kinds of
    `<kind>/<name>`."""
    kind, slash, _ = stream.partition("/")
    return not slash or kind in KINDS


def subject(stream: str) -> str:
    """Return the pod or node that the events of a stream are about; the stream if there is none."""
    kind, _, name = stream.partition("/")
    return name if kind in ("pod", "node", "report") else stream


def report(node: str) -> str:
    """The topology-store's stream of one node."""
    return f"report/{node}"


def node(name: str) -> str:
    """Charges, dirty marks, reconciliations and the Node object of one node."""
    return f"node/{name}"


def of_node(name: str) -> tuple[str, ...]:
    """Return the streams on which only events about this node are."""
    return node(name), report(name), f"csinode/{name}", f"devices/{name}"


def listing(kind: str) -> str:
    """Lists of the whole cluster, by kind of object."""
    return f"listing/{kind}"


def hold(uid: str) -> str:
    """Holds of nodes for one overdue pod."""
    return f"hold/{uid}"


def pod(uid: str) -> str:
    """Everything that happens to one pod."""
    return f"pod/{uid}"
