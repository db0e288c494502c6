"""The rights that each service needs at the Kubernetes API, for readiness, `topolog doctor` and
manifests.

tests/deploy compares the roles in k8s/ with this table, and tests/kube compares it with the calls
that the client makes.
"""

from __future__ import annotations

import msgspec

TOPOLOGY_GROUP = "topology.node.k8s.io"

POD_GROUPS = (
    "scheduling.k8s.io",
    "scheduling.sigs.k8s.io",
    "scheduling.volcano.sh",
    "scheduling.x-k8s.io",
)


class Right(msgspec.Struct, frozen=True, order=True):
    """One verb on one resource in all namespaces. `pods/binding` is a resource; "" is the core
    group."""

    group: str
    resource: str
    verb: str

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}" + (f".{self.group}" if self.group else "")


def _rights(group: str, resource: str, *verbs: str) -> frozenset[Right]:
    return frozenset(Right(group, resource, verb) for verb in verbs)


# Reads only: pods, nodes, and the objects of constraints.
SCHEDULER = (
    _rights("", "pods", "get", "list", "watch")
    | _rights("", "nodes", "get", "list", "watch")
    | _rights("", "namespaces", "list", "watch")
    | _rights("", "persistentvolumes", "list", "watch")
    | _rights("", "persistentvolumeclaims", "list", "watch")
    | _rights("storage.k8s.io", "csinodes", "list", "watch")
    | _rights("resource.k8s.io", "deviceclasses", "list", "watch")
    | frozenset[Right]().union(*(_rights(api, "podgroups", "list", "watch") for api in POD_GROUPS))
    | _rights("scheduling.koordinator.sh", "devices", "list", "watch")
    | _rights("scheduling.koordinator.sh", "reservations", "list", "watch")
)

# The only service that writes pods (through their subresources) and Kubernetes Events.
BINDER = (
    _rights("", "pods", "get")
    | _rights("", "pods/binding", "create")
    | _rights("", "pods/eviction", "create")
    | _rights("", "pods/status", "patch")
    | _rights("", "events", "create")
)

TOPOLOGY_INTAKE = _rights(TOPOLOGY_GROUP, "noderesourcetopologies", "list", "watch")
TOPOLOGY_MIRROR = _rights(
    TOPOLOGY_GROUP, "noderesourcetopologies", "list", "watch", "create", "patch", "delete"
)
# NodeResourceTopology objects: reads those of other exporters and writes its own.
TOPOLOGY_STORE = TOPOLOGY_INTAKE | TOPOLOGY_MIRROR

# Only if exporters write NodeResourceTopology objects themselves.
EXPORTER_OBJECTS = _rights("", "nodes", "get") | _rights(
    TOPOLOGY_GROUP, "noderesourcetopologies", "create", "patch"
)

# Only if exporters write Device objects.
EXPORTER_DEVICES = _rights("scheduling.koordinator.sh", "devices", "create", "patch")

# Only if exporters write conditions of their own pods, in their own namespace.
EXPORTER_READINESS = _rights("", "pods/status", "patch")

# Only if exporters count devices of dynamic resource allocation by zone.
EXPORTER_SLICES = _rights("resource.k8s.io", "resourceslices", "list")

# Only if NATS authenticates exporters by the tokens of their pods; needed by NATS.
NATS_LOGINS = _rights("authentication.k8s.io", "tokenreviews", "create")

# Only if the topology-store writes the status of Reservation objects.
RESERVATIONS = _rights("scheduling.koordinator.sh", "reservations/status", "patch")

# Only if `topolog plan defragment` runs in the scheduler's pod.
DEFRAGMENT = _rights("policy", "poddisruptionbudgets", "list")

# Only if the cluster has several cells; needed by the scheduler.
CELL = _rights("", "nodes", "patch") | _rights("", "pods/status", "patch")

# Only if nodes register with a taint that the topology-store removes after the first report.
STARTUP_TAINT = _rights("", "nodes", "patch")

BY_SERVICE: dict[str, frozenset[Right]] = {
    "exporter": frozenset(),
    "topology-store": TOPOLOGY_STORE,
    "scheduler": SCHEDULER,
    "binder": BINDER,
}
