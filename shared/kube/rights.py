"""The rights that each service asks of the Kubernetes API: one table for readiness, `topolog
doctor` and manifests.

tests/deploy holds the roles in k8s/ to it, and tests/kube holds it to the calls that the client
makes. Must not know how rights are asked for.
"""

from __future__ import annotations

import msgspec

TOPOLOGY_GROUP = "topology.node.k8s.io"


class Right(msgspec.Struct, frozen=True, order=True):
    """One verb on one resource, in all namespaces: `pods/binding` is a resource, "" the core group."""

    group: str
    resource: str
    verb: str

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}" + (f".{self.group}" if self.group else "")


def _rights(group: str, resource: str, *verbs: str) -> frozenset[Right]:
    return frozenset(Right(group, resource, verb) for verb in verbs)


SCHEDULER = (
    _rights("", "pods", "list", "watch")
    | _rights("", "nodes", "list", "watch")
    | _rights("", "namespaces", "list", "watch")
    | _rights("", "persistentvolumes", "list", "watch")
    | _rights("", "persistentvolumeclaims", "list", "watch")
    | _rights("storage.k8s.io", "csinodes", "list", "watch")
    | _rights("resource.k8s.io", "deviceclasses", "list", "watch")
)
"""Reads, and never writes: pods, nodes, and what constraints ask for."""

BINDER = (
    _rights("", "pods", "get")
    | _rights("", "pods/binding", "create")
    | _rights("", "pods/eviction", "create")
    | _rights("", "pods/status", "patch")
    | _rights("", "events", "create")
)
"""The only writer of pods, through their subresources, and of events."""

TOPOLOGY_INTAKE = _rights(TOPOLOGY_GROUP, "noderesourcetopologies", "list", "watch")
TOPOLOGY_MIRROR = _rights(
    TOPOLOGY_GROUP, "noderesourcetopologies", "list", "watch", "create", "patch", "delete"
)
TOPOLOGY_STORE = TOPOLOGY_INTAKE | TOPOLOGY_MIRROR
"""NodeResourceTopology objects: those of other exporters read, its own written."""

EXPORTER_OBJECTS = _rights("", "nodes", "get") | _rights(
    TOPOLOGY_GROUP, "noderesourcetopologies", "create", "patch"
)
"""Only where exporters write NodeResourceTopology objects themselves; the exporter's."""

EXPORTER_READINESS = _rights("", "pods/status", "patch")
"""Only where exporters write conditions of their own pods; in the exporter's namespace alone."""

EXPORTER_SLICES = _rights("resource.k8s.io", "resourceslices", "list")
"""Only where exporters count devices of dynamic resource allocation by zone."""

NATS_LOGINS = _rights("authentication.k8s.io", "tokenreviews", "create")
"""Only where NATS knows exporters by the tokens of their pods; NATS' own."""

STARTUP_TAINT = _rights("", "nodes", "patch")
"""Only where nodes are registered with a taint that their first report takes away; the topology-store's."""

BY_SERVICE: dict[str, frozenset[Right]] = {
    "exporter": frozenset(),
    "topology-store": TOPOLOGY_STORE,
    "scheduler": SCHEDULER,
    "binder": BINDER,
}
