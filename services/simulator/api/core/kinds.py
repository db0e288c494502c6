"""Which resources this server knows, and how each behaves. Must not know objects, requests or
storage.
"""

from __future__ import annotations

from typing import Literal

import msgspec

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


class Kind(msgspec.Struct, frozen=True, eq=False):
    """One resource of the API: its names, scope and the traits that rules use.

    `storage` is the shelf of its objects (core and events.k8s.io Events share one). `generation`
    says what raises metadata.generation. `custom` marks a CustomResourceDefinition, whose patches
    and errors differ from built-in kinds.
    """

    group: str
    version: str
    resource: str
    kind: str
    singular: str
    namespaced: bool
    storage: str
    short_names: tuple[str, ...] = ()
    custom: bool = False
    generation: Literal["none", "spec", "all"] = "none"
    has_status: bool = False
    subresources: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    creates_on_update: bool = False
    needs_version_on_update: bool = False
    error_group: str | None = None
    field_labels: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()

    @property
    def api_version(self) -> str:
        """`v1` for the core group, `group/version` otherwise."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def group_in_errors(self) -> str:
        """The group that error texts name (for Events always the core group)."""
        return self.group if self.error_group is None else self.error_group

    @property
    def qualified(self) -> str:
        """`pods` or `leases.coordination.k8s.io`, as error texts write it."""
        return f"{self.resource}.{self.group_in_errors}" if self.group_in_errors else self.resource

    @property
    def qualified_kind(self) -> str:
        """`Pod` or `Lease.coordination.k8s.io`, as validation errors write it."""
        return f"{self.kind}.{self.group_in_errors}" if self.group_in_errors else self.kind


_EVENT_LABELS = (
    *(
        f"involvedObject.{part}"
        for part in (
            "kind",
            "namespace",
            "name",
            "uid",
            "apiVersion",
            "resourceVersion",
            "fieldPath",
        )
    ),
    "reason",
    "reportingComponent",
    "source",
    "type",
)

PODS = Kind(
    "",
    "v1",
    "pods",
    "Pod",
    "pod",
    True,
    "pods",
    ("po",),
    generation="spec",
    has_status=True,
    subresources=(
        "attach",
        "binding",
        "eviction",
        "exec",
        "log",
        "portforward",
        "resize",
        "status",
    ),
    categories=("all",),
    field_labels=(
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.podIPs",
        "status.nominatedNodeName",
    ),
)
NODES = Kind(
    "",
    "v1",
    "nodes",
    "Node",
    "node",
    False,
    "nodes",
    ("no",),
    has_status=True,
    subresources=("status",),
    field_labels=("spec.unschedulable",),
)
NAMESPACES = Kind(
    "",
    "v1",
    "namespaces",
    "Namespace",
    "namespace",
    False,
    "namespaces",
    ("ns",),
    has_status=True,
    subresources=("finalize", "status"),
    field_labels=("status.phase",),
    verbs=("create", "delete", "get", "list", "patch", "update", "watch"),
)
SERVICES = Kind(
    "",
    "v1",
    "services",
    "Service",
    "service",
    True,
    "services",
    ("svc",),
    has_status=True,
    subresources=("status",),
    categories=("all",),
)
EVENTS = Kind(
    "",
    "v1",
    "events",
    "Event",
    "event",
    True,
    "events",
    ("ev",),
    creates_on_update=True,
    field_labels=_EVENT_LABELS,
)
_MODERN_EVENT_LABELS = tuple(
    label.replace("involvedObject.", "regarding.").replace(
        "reportingComponent", "reportingController"
    )
    for label in _EVENT_LABELS
)
EVENTS_V1 = Kind(
    "events.k8s.io",
    "v1",
    "events",
    "Event",
    "event",
    True,
    "events",
    ("ev",),
    creates_on_update=True,
    error_group="",
    field_labels=_MODERN_EVENT_LABELS,
)
LEASES = Kind(
    "coordination.k8s.io",
    "v1",
    "leases",
    "Lease",
    "lease",
    True,
    "leases",
    creates_on_update=True,
    needs_version_on_update=True,
)
BUDGETS = Kind(
    "policy",
    "v1",
    "poddisruptionbudgets",
    "PodDisruptionBudget",
    "poddisruptionbudget",
    True,
    "poddisruptionbudgets",
    ("pdb",),
    generation="spec",
    has_status=True,
    subresources=("status",),
)
TOPOLOGIES = Kind(
    "topology.node.k8s.io",
    "v1alpha2",
    "noderesourcetopologies",
    "NodeResourceTopology",
    "noderesourcetopology",
    False,
    "noderesourcetopologies",
    ("node-res-topo",),
    custom=True,
    generation="all",
    needs_version_on_update=True,
    verbs=("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"),
)
# Koordinator's Device objects.
DEVICES = Kind(
    "scheduling.koordinator.sh",
    "v1alpha1",
    "devices",
    "Device",
    "device",
    False,
    "devices",
    custom=True,
    generation="all",
    needs_version_on_update=True,
    verbs=TOPOLOGIES.verbs,
)

# Koordinator's Reservation objects.
RESERVATIONS = Kind(
    "scheduling.koordinator.sh",
    "v1alpha1",
    "reservations",
    "Reservation",
    "reservation",
    False,
    "reservations",
    custom=True,
    generation="spec",
    has_status=True,
    subresources=("status",),
    needs_version_on_update=True,
    verbs=TOPOLOGIES.verbs,
)

CONFIG_MAPS = Kind("", "v1", "configmaps", "ConfigMap", "configmap", True, "configmaps", ("cm",))
PRIORITIES = Kind(
    "scheduling.k8s.io",
    "v1",
    "priorityclasses",
    "PriorityClass",
    "priorityclass",
    False,
    "priorityclasses",
    ("pc",),
)
VOLUMES = Kind(
    "",
    "v1",
    "persistentvolumes",
    "PersistentVolume",
    "persistentvolume",
    False,
    "persistentvolumes",
    ("pv",),
    has_status=True,
    subresources=("status",),
)
CLAIMS = Kind(
    "",
    "v1",
    "persistentvolumeclaims",
    "PersistentVolumeClaim",
    "persistentvolumeclaim",
    True,
    "persistentvolumeclaims",
    ("pvc",),
    has_status=True,
    subresources=("status",),
)
RUNTIMES = Kind(
    "node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", "runtimeclass", False, "runtimeclasses"
)
CSI_NODES = Kind("storage.k8s.io", "v1", "csinodes", "CSINode", "csinode", False, "csinodes")
_SCALED = ("scale", "status")
DEPLOYMENTS = Kind(
    "apps",
    "v1",
    "deployments",
    "Deployment",
    "deployment",
    True,
    "deployments",
    ("deploy",),
    generation="spec",
    has_status=True,
    subresources=_SCALED,
    categories=("all",),
)
REPLICA_SETS = Kind(
    "apps",
    "v1",
    "replicasets",
    "ReplicaSet",
    "replicaset",
    True,
    "replicasets",
    ("rs",),
    generation="spec",
    has_status=True,
    subresources=_SCALED,
    categories=("all",),
)
STATEFUL_SETS = Kind(
    "apps",
    "v1",
    "statefulsets",
    "StatefulSet",
    "statefulset",
    True,
    "statefulsets",
    ("sts",),
    generation="spec",
    has_status=True,
    subresources=_SCALED,
    categories=("all",),
)
JOBS = Kind(
    "batch",
    "v1",
    "jobs",
    "Job",
    "job",
    True,
    "jobs",
    generation="spec",
    has_status=True,
    subresources=("status",),
    categories=("all",),
)

KINDS: tuple[Kind, ...] = (
    PODS,
    NODES,
    NAMESPACES,
    SERVICES,
    EVENTS,
    EVENTS_V1,
    LEASES,
    BUDGETS,
    TOPOLOGIES,
    DEVICES,
    RESERVATIONS,
    CONFIG_MAPS,
    PRIORITIES,
    DEPLOYMENTS,
    REPLICA_SETS,
    STATEFUL_SETS,
    JOBS,
    VOLUMES,
    CLAIMS,
    CSI_NODES,
    RUNTIMES,
)
WORKLOADS = (DEPLOYMENTS, REPLICA_SETS, STATEFUL_SETS, JOBS)
BY_PATH: dict[tuple[str, str, str], Kind] = {
    (kind.group, kind.version, kind.resource): kind for kind in KINDS
}
BY_STORAGE: dict[str, Kind] = {kind.storage: kind for kind in reversed(KINDS)}
GROUP_VERSIONS: frozenset[tuple[str, str]] = frozenset(
    {(kind.group, kind.version) for kind in KINDS}
    | {("authorization.k8s.io", "v1"), ("authentication.k8s.io", "v1")}
)
