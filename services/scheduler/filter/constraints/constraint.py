"""Constraints: which nodes a pod may use, by rules of Kubernetes that look beyond the node's
object.

Theory, for a newcomer who adds one:

1. A constraint has two moments. `read` looks at the pod's spec when the pod is observed, and keeps
   the values that it needs as plain JSON (`Constraints.kept`), which is stored with the pod's
   event. `check` runs for each decision and returns a function that looks at one node. It sees
   other pods, volumes and labels through the `ClusterView`, as they are now.
2. Fields that a constraint reads are no longer unsupported: it names them in `handles`. A form of
   the field that it does not implement raises `NotHandled`; the pod then waits, and its event names
   the field.
3. Most pods concern few constraints. A constraint is called for a pod of which it kept something,
   and for every pod while the part of the view that `depends_on` names is not empty (excluded
   nodes, for example).
4. A constraint carries its own reasons. A `RefusalReason` has the name that is stored, the phrase
   that the pod's event counts nodes by (kube-scheduler's phrase, if it has one), and the remedy. A
   new reason needs no other change, because explanations use what the refusal carries.
5. A rule that looks at the node's own object alone is not a constraint but a predicate
   (`predicates.py`): predicates are kept by node and cost nothing in a decision.
6. A constraint knows no zones, with one exception: `nominated` keeps a zone for a nominated pod.
7. `check` is the rule, and gives the reason. A decision calls `passing` for all nodes at once,
   which by default calls the check of each node. A constraint that concerns many pods or nodes
   should have an array form instead, which returns the same from `ClusterView.columns` and from
   counts by slot. `tests/scheduler/default/test_array_forms.py` compares the two for every
   constraint.

Example, a constraint that keeps pods of one tribe on nodes of that tribe::

    WRONG_TRIBE = RefusalReason(
        name="wrong tribe",
        phrase="node(s) belonged to another tribe",
        remedy="use nodes with the label example.com/tribe",
    )

    class Tribe(Constraint):
        name = "tribe"
        handles = frozenset(("spec.tribe",))
        reasons = (WRONG_TRIBE,)

        def read(self, spec, pod):
            return fields.text(spec, "tribe", "spec") or None

        def check(self, pod, kept, view):
            def check(node_info):
                if label_of(node_info, "example.com/tribe") == kept:
                    return None
                return WRONG_TRIBE.refusal(node_info.name, kept)

            return check

        def passing(self, pod, kept, view):  # optional
            return view.columns.label("example.com/tribe").among([kept])

One line in `registry.py` makes it part of every decision.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

from services.scheduler.filter.constraints.placed_pods import PlacedPods
from services.scheduler.snapshot.node_arrays import Bools
from services.scheduler.snapshot.node_columns import NodeColumns
from services.scheduler.snapshot.node_info import NodeInfo
from services.scheduler.state.cluster_objects import ClusterObjects
from services.scheduler.state.exclusions import Exclusions
from services.scheduler.state.holds import Holds
from shared.domain.fields import Json
from shared.domain.pod import Pod
from shared.domain.refusal import Refusal

# Returns why this node may not take the pod; None if it may.
Check = Callable[[NodeInfo], Refusal | None]


NO_HOLDS = Holds()


class NotHandled(Exception):
    """The constraint does not implement this form of the field, which stays unsupported."""


class RefusalReason(NamedTuple):
    """Why a node does not take a pod.

    `name` is stored with scheduling outcomes and must not change. Events count nodes by `phrase`,
    in which %s stands for the refusal's subject and %r for its resource. `remedy` says what would
    help.
    """

    name: str
    phrase: str
    remedy: str

    def refusal(
        self,
        node: str,
        subject: str = "",
        *,
        resource: str = "",
        asked: int = 0,
        best: int = 0,
        remedy: str = "",
        shown: str = "",
    ) -> Refusal:
        """Return the refusal of one node.

        `subject` names the label, taint, claim or field concerned, `shown` is how the phrase writes
        it if that differs. A `remedy` of this case goes before the general one.
        """
        return Refusal(
            node,
            self.name,
            subject,
            resource,
            asked=asked,
            best=best,
            phrase=self.phrase.replace("%s", shown or subject).replace("%r", resource),
            remedy=remedy or self.remedy,
        )


class UnusableResource(NamedTuple):
    """Why a node's kubelet gives a resource to no pod, or fails if one requests it.

    `concerned` says which pods: all that name the resource (in an amount of 0, too), Guaranteed
    ones of these, or pods that request more than 0.
    """

    reason: RefusalReason
    subject: str
    concerned: Literal["names", "names, Guaranteed", "requests"]

    def concerns(self, pod: Pod, amount: int) -> bool:
        """Return whether a pod that names this amount of the resource is concerned."""
        if self.concerned == "requests":
            return amount > 0
        return self.concerned == "names" or pod.qos == "Guaranteed"


class ClusterView(NamedTuple):
    """The view of a constraint on everything apart from the node.

    `nodes` by name, `placed_pods`, `exclusions` of nodes for pod classes, `cluster_objects`
    (volumes, claims, namespaces, nominations, device classes), `holds` of nodes for overdue pods,
    and `unusable` resources by resource and node (`unusable_resources.py`). `columns` has labels
    and other values of nodes by slot.
    """

    nodes: Mapping[str, NodeInfo]
    placed_pods: PlacedPods
    exclusions: Exclusions
    cluster_objects: ClusterObjects
    unusable: Mapping[str, Mapping[str, UnusableResource]] = {}
    holds: Holds = NO_HOLDS

    @property
    def columns(self) -> NodeColumns:
        return self.placed_pods.columns

    def label(self, node: str, key: str) -> str | None:
        """Return a label of a node."""
        node_info = self.nodes.get(node)
        return label_of(node_info, key) if node_info is not None else None


def label_of(node_info: NodeInfo, key: str) -> str | None:
    """Return a label of a node, None if it has none or was not observed yet."""
    return node_info.observed.labels.get(key) if node_info.observed is not None else None


class Constraint(ABC):
    """One rule. See the module's theory for an example.

    `name` is the key in `Constraints.kept`, stored with the pod's event. `reasons` are all that
    `check` may give, for the documentation.
    """

    name: str
    reasons: tuple[RefusalReason, ...]
    # Spec fields, as `shared.domain.constraints` calls them, that are supported by this constraint.
    handles: frozenset[str] = frozenset()
    # The part of the view that concerns every pod unless it is empty; None without one.
    depends_on: Callable[[ClusterView], Any] | None = None

    def read(self, spec: Json, pod: Pod) -> Any:
        """Return what to keep of the spec, equal for equal specs; None for nothing.

        Raises NotHandled, and `fields.RefusedError` for a spec that is wrong.
        """
        return None

    @abstractmethod
    def check(self, pod: Pod, kept: Any, view: ClusterView) -> Check | None:
        """Return the check of all nodes for this pod, None if every node passes."""

    def passing(self, pod: Pod, kept: Any, view: ClusterView) -> Bools | None:
        """Return by slot which nodes pass the check, None if every node does; not to be written to.

        This is the array form, if the constraint has one. Its values for slots without a node have
        no meaning.
        """
        check = self.check(pod, kept, view)
        if check is None:
            return None
        return view.columns.each(lambda node_info: check(node_info) is None)
