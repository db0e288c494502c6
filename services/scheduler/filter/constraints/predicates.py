"""Node-level predicates of a second scheduler: name, selector, affinity, taints, readiness,
resources.

Semantics: kube-scheduler (component-helpers nodeaffinity, corev1 helpers tolerations). Must not
know zones.

Constraints on nodes in columns: for each distinct set of constraints which nodes it allows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from services.scheduler.snapshot.node_arrays import Slots
from services.scheduler.snapshot.node_info import NodeInfo
from shared.domain.atoi import atoi
from shared.domain.pod import Constraints, NodeSelectorTerm, Toleration
from shared.domain.refusal import Reason, Refusal
from shared.domain.resources import PODS, Amounts
from shared.events.cluster_events import NodeObserved, Taint

_UNSCHEDULABLE_TAINT = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
_NOT_READY_TAINTS = tuple(
    Taint(f"node.kubernetes.io/{key}", "", "NoSchedule") for key in ("not-ready", "unreachable")
)
"""What the node's controller makes of the condition, some time later; kube-scheduler looks at these alone."""
_CANONICAL = re.compile(r"0|-?[1-9][0-9]*", re.ASCII)
"""A number as tolerations and taints that are compared must be written, without leading zeros (KEP-5471)."""


def constraint_refusal(
    constraints: Constraints, node: NodeObserved | None, name: str
) -> Refusal | None:
    """Why the pod may not go to this node whatever is free there; None when it may."""
    if node is None:
        return Refusal(name, Reason.UNKNOWN_NODE)
    if constraints.node_name and constraints.node_name != node.name:
        return Refusal(name, Reason.NODE_NAME, constraints.node_name)
    for key, value in sorted(constraints.node_selector.items()):
        if node.labels.get(key) != value:
            return Refusal(name, Reason.NODE_SELECTOR, f"{key}={value}")
    terms = constraints.required_affinity
    if terms and not any(matches(term, node) for term in terms):
        return Refusal(name, Reason.NODE_AFFINITY)
    return _availability(constraints, node)


def selects(constraints: Constraints, node: NodeObserved) -> bool:
    """Do the pod's node selector and required node affinity allow the node?"""
    terms = constraints.required_affinity
    chosen = all(node.labels.get(key) == value for key, value in constraints.node_selector.items())
    return chosen and (not terms or any(matches(term, node) for term in terms))


def _availability(constraints: Constraints, node: NodeObserved) -> Refusal | None:
    if node.unschedulable and not tolerated(_UNSCHEDULABLE_TAINT, constraints.tolerations):
        return Refusal(node.name, Reason.UNSCHEDULABLE)
    if not node.ready and not any(
        tolerated(taint, constraints.tolerations) for taint in _NOT_READY_TAINTS
    ):
        return Refusal(node.name, Reason.NOT_READY)
    taint = untolerated(constraints, node)
    if taint is None:
        return None
    return Refusal(
        node.name, Reason.TAINT, f"{taint.key}={taint.value}:{taint.effect}".replace("=:", ":")
    )


def untolerated(constraints: Constraints, node: NodeObserved) -> Taint | None:
    """The first taint that keeps the pod away."""
    barring = (taint for taint in node.taints if taint.effect in ("NoSchedule", "NoExecute"))
    return next((taint for taint in barring if not tolerated(taint, constraints.tolerations)), None)


def tolerated(taint: Taint, tolerations: tuple[Toleration, ...]) -> bool:
    """core/v1 semantics: an empty key with Exists tolerates everything, an empty effect any effect."""
    return any(
        t.effect in ("", taint.effect)
        and (t.key == taint.key or (not t.key and t.operator == "Exists"))
        and _tolerates_value(t, taint.value)
        for t in tolerations
    )


def _tolerates_value(toleration: Toleration, value: str) -> bool:
    """Gt and Lt compare the taint's value with the toleration's (KEP-5471); an API server that does
    not have them takes none.
    """
    operator, bound = toleration.operator, toleration.value
    if operator in ("Gt", "Lt"):
        return all(map(_CANONICAL.fullmatch, (value, bound))) and _compares(
            operator, value, (bound,)
        )
    return operator == "Exists" or (operator in ("", "Equal") and value == bound)


def matches(term: NodeSelectorTerm, node: NodeObserved) -> bool:
    """Every expression and field of the term; an empty term matches nothing."""
    if not term.expressions and not term.fields:
        return False
    fields = {"metadata.name": node.name}
    return all(_holds(req, node.labels) for req in term.expressions) and all(
        _holds(req, fields) for req in term.fields
    )


def _holds(requirement: tuple[str, str, tuple[str, ...]], labels: Mapping[str, str]) -> bool:
    key, operator, values = requirement
    value = labels.get(key)
    if operator == "In":
        return value is not None and value in values
    if operator == "NotIn":
        return value is None or value not in values
    if operator == "Exists":
        return value is not None
    if operator == "DoesNotExist":
        return value is None
    return _compares(operator, value, values)


def _compares(operator: str, value: str | None, values: tuple[str, ...]) -> bool:
    left, right = atoi(value or ""), atoi(values[0] if len(values) == 1 else "")
    if left is None or right is None:
        return False
    return left > right if operator == "Gt" else operator == "Lt" and left < right


def resource_refusal(request: Amounts, node_info: NodeInfo) -> Refusal | None:
    """The first resource, by name, of which the node as a whole has too little left."""
    for name in sorted(request):
        left, asked = node_info.free(name), request[name]
        if left >= asked:
            continue
        if name == PODS:
            return Refusal(node_info.name, Reason.TOO_MANY_PODS, resource=PODS, asked=1, best=left)
        return Refusal(node_info.name, Reason.NODE_RESOURCE, resource=name, asked=asked, best=left)
    return None


def fits_node(request: Amounts, node_info: NodeInfo) -> bool:
    """The same as a plain yes or no."""
    requested, allocatable = node_info.requested, node_info.allocatable
    for name, asked in request.items():
        if allocatable.get(name, 0) - requested.get(name, 0) < asked and (
            name != PODS or name in allocatable
        ):
            return False
    return True


_ENCODER = msgspec.msgpack.Encoder()


class _Allowed:
    """One set of constraints: which slots it allows, and those that are yet to be asked."""

    def __init__(self) -> None:
        self.slots = np.zeros(0, dtype=np.bool_)
        self.unknown: set[int] = set()


class ConstraintColumns:
    """Bounded: the longest unused set of constraints is forgotten first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._columns: dict[bytes, _Allowed] = {}

    def forget(self, slot: int) -> None:
        """The node's object changed."""
        for column in self._columns.values():
            column.unknown.add(slot)

    def allowed(
        self, constraints: Constraints, nodes: Sequence[NodeInfo | None], chosen: slice | Slots
    ) -> npt.NDArray[np.bool_]:
        """True for each of the chosen slots whose node these constraints allow."""
        key = _ENCODER.encode(constraints)
        column = self._columns.pop(key, None) or _Allowed()
        self._columns[key] = column
        if len(self._columns) > self._limit:
            del self._columns[next(iter(self._columns))]
        more = len(nodes) - len(column.slots)
        if more:
            column.unknown.update(range(len(column.slots), len(nodes)))
            column.slots = np.append(column.slots, np.zeros(more, dtype=np.bool_))
        if column.unknown:
            for slot in column.unknown:
                column.slots[slot] = _allows(constraints, nodes[slot])
            column.unknown.clear()
        found: npt.NDArray[np.bool_] = column.slots[chosen]
        return found


def _allows(constraints: Constraints, node_info: NodeInfo | None) -> bool:
    return (
        node_info is not None
        and constraint_refusal(constraints, node_info.observed, node_info.name) is None
    )
