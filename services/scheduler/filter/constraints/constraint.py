"""What a constraint of Kubernetes is to the cycle: what it keeps of a pod's spec, and which nodes
it bars while others run there.

Constraints on a node's own object are `predicates`; those here depend on what else runs, or on what
was learnt of the node. Each is one file that implements `Constraint` and one line in `registry`.
Must not know zones (but for `nominee_zone`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, Protocol

from services.scheduler.filter.constraints.placed_pods import PlacedPods
from services.scheduler.snapshot.node_info import NodeInfo
from services.scheduler.state.cluster_objects import ClusterObjects
from services.scheduler.state.exclusions import Exclusions
from shared.domain.fields import Json
from shared.domain.pod import Pod
from shared.domain.refusal import Reason, Refusal

Check = Callable[[NodeInfo], Refusal | None]
"""Why this node may not take the pod; None when it may."""


class NotHandled(Exception):
    """A form of the field that the constraint does not implement: the field stays unsupported, and
    the pod waits with its name."""


class UnusableResource(NamedTuple):
    """Why a node takes nobody of those `who` want a resource: who names it, in an amount of 0, too;
    of these who is Guaranteed; who asks for some."""

    reason: Reason
    subject: str
    remedy: str
    who: Literal["names", "names, Guaranteed", "asks"]

    def concerns(self, pod: Pod, asked: int) -> bool:
        """Whether it bars a pod that names so much of the resource."""
        if self.who == "asks":
            return asked > 0
        return self.who == "names" or pod.qos == "Guaranteed"


class ClusterView(NamedTuple):
    """What a constraint may look at beside the node: all nodes by name, pods that are placed, what
    was learnt, what surrounds them (volumes, namespaces), and by resource the nodes that are barred
    for it, and why (`barred_resources`)."""

    nodes: Mapping[str, NodeInfo]
    placed_pods: PlacedPods
    exclusions: Exclusions
    cluster_objects: ClusterObjects
    unusable: Mapping[str, Mapping[str, UnusableResource]] = {}

    def label(self, node: str, key: str) -> str | None:
        """A label of a node."""
        node_info = self.nodes.get(node)
        return label_of(node_info, key) if node_info is not None else None


def label_of(node_info: NodeInfo, key: str) -> str | None:
    """A label of a node, None where it has none or was not seen yet."""
    return node_info.observed.labels.get(key) if node_info.observed is not None else None


class Constraint(Protocol):
    """`name` is the key in `Constraints.kept`; `handles` are the names of spec fields (as
    `shared.domain.constraints` calls them) that are no longer unsupported because this constraint
    keeps them."""

    name: str
    handles: frozenset[str]

    def read(self, spec: Json, pod: Pod) -> Any:
        """What is kept of the spec: plain JSON values that two equal specs share, None for nothing.
        Raises NotHandled, and `fields.RefusedError` for a spec that is wrong."""

    def check(self, pod: Pod, kept: Any, view: ClusterView) -> Check | None:
        """The check of all nodes for this pod, None where every node passes."""


class KeepsNothing:
    """What bars nodes by no field of the pod's spec: half of a `Constraint`."""

    handles: frozenset[str] = frozenset()

    def read(self, spec: Json, pod: Pod) -> Any:
        """Nothing."""
        return None
