"""Predicates: rules that look at one node's own object alone. Node name, selector, affinity,
taints, readiness, and resources of the whole node.

Semantics: kube-scheduler (component-helpers nodeaffinity, corev1 helpers tolerations), with its
phrases. The answer for a set of constraints is kept by node until the node's object changes
(`ConstraintColumns`). Must not know zones.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import reduce
from operator import attrgetter, or_

import msgspec
import numpy as np

from services.scheduler.filter.constraints.constraint import RefusalReason
from services.scheduler.snapshot.node_arrays import Bools
from services.scheduler.snapshot.node_columns import Column, NodeColumns, SlotArray
from services.scheduler.snapshot.node_info import NodeInfo
from shared.domain.atoi import atoi
from shared.domain.pod import Constraints, NodeSelectorTerm, Toleration
from shared.domain.quantity import format_amount
from shared.domain.refusal import Reason, Refusal
from shared.domain.resources import PODS, Amounts
from shared.events.cluster_events import NodeObserved, Taint

NOT_OBSERVED = RefusalReason(
    name=Reason.UNKNOWN_NODE,
    phrase="node(s) were not observed yet",
    remedy="wait until the node's object has been seen",
)
WRONG_NAME = RefusalReason(
    name=Reason.NODE_NAME,
    phrase="node(s) didn't match the requested node name",
    remedy="remove the pod's nodeName or its affinity to metadata.name",
)
WRONG_LABEL = RefusalReason(
    name=Reason.NODE_SELECTOR,
    phrase="node(s) didn't match Pod's node affinity/selector",
    remedy="label the node so, or change the pod's nodeSelector",
)
WRONG_AFFINITY = RefusalReason(
    name=Reason.NODE_AFFINITY,
    phrase="node(s) didn't match Pod's node affinity/selector",
    remedy="label the node as one of the pod's required terms says, or change the terms",
)
CORDONED = RefusalReason(
    name=Reason.UNSCHEDULABLE,
    phrase="node(s) were unschedulable",
    remedy="`kubectl uncordon` the node",
)
NOT_READY = RefusalReason(
    name=Reason.NOT_READY,
    phrase="node(s) were not ready",
    remedy="wait until the node's kubelet is ready",
)
UNTOLERATED = RefusalReason(
    name=Reason.TAINT,
    phrase="node(s) had untolerated taint {%s}",
    remedy="remove the taint, or let the pod tolerate it",
)
INSUFFICIENT = RefusalReason(name=Reason.NODE_RESOURCE, phrase="Insufficient %r", remedy="")
TOO_MANY_PODS = RefusalReason(
    name=Reason.TOO_MANY_PODS,
    phrase="Too many pods",
    remedy="wait until a pod of the node ends, or raise the kubelet's maxPods",
)
REASONS = (
    NOT_OBSERVED, WRONG_NAME, WRONG_LABEL, WRONG_AFFINITY, CORDONED, NOT_READY, UNTOLERATED,
    INSUFFICIENT, TOO_MANY_PODS,
)  # fmt: skip

_UNSCHEDULABLE_TAINT = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
# The taints that the node's controller sets some time after the condition; kube-scheduler looks at
# the taints alone.
_NOT_READY_TAINTS = tuple(
    Taint(f"node.kubernetes.io/{key}", "", "NoSchedule") for key in ("not-ready", "unreachable")
)
# A number as tolerations and taints that are compared must be written, without leading zeros
# (KEP-5471).
_CANONICAL = re.compile(r"0|-?[1-9][0-9]*", re.ASCII)

_ENCODER = msgspec.msgpack.Encoder()


def constraint_refusal(
    constraints: Constraints, node: NodeObserved | None, name: str
) -> Refusal | None:
    """Return why the pod may not use this node, whatever is free there; None if it may."""
    if node is None:
        return NOT_OBSERVED.refusal(name)
    if constraints.node_name and constraints.node_name != node.name:
        return WRONG_NAME.refusal(name, constraints.node_name)
    for key, value in sorted(constraints.node_selector.items()):
        if node.labels.get(key) != value:
            return WRONG_LABEL.refusal(name, f"{key}={value}")
    terms = constraints.required_affinity
    if terms and not any(matches(term, node) for term in terms):
        return WRONG_AFFINITY.refusal(name)
    return _availability(constraints, node)


def _availability(constraints: Constraints, node: NodeObserved) -> Refusal | None:
    tolerations = constraints.tolerations
    if node.unschedulable and not tolerated(_UNSCHEDULABLE_TAINT, tolerations):
        return CORDONED.refusal(node.name)
    if not node.ready and not any(tolerated(taint, tolerations) for taint in _NOT_READY_TAINTS):
        return NOT_READY.refusal(node.name)
    taint = untolerated(constraints, node.taints)
    if taint is None:
        return None
    subject = f"{taint.key}={taint.value}:{taint.effect}".replace("=:", ":")
    return UNTOLERATED.refusal(node.name, subject, shown=f"{taint.key}: {taint.value}")


def selects(constraints: Constraints, node: NodeObserved) -> bool:
    """Return whether the pod's node selector and required node affinity allow the node."""
    terms = constraints.required_affinity
    for key, value in constraints.node_selector.items():
        if node.labels.get(key) != value:
            return False
    return not terms or any(matches(term, node) for term in terms)


def untolerated(constraints: Constraints, taints: Iterable[Taint]) -> Taint | None:
    """Return the first of a node's taints that keeps the pod away."""
    for taint in taints:
        keeps_away = taint.effect in ("NoSchedule", "NoExecute")
        if keeps_away and not tolerated(taint, constraints.tolerations):
            return taint
    return None


def tolerated(taint: Taint, tolerations: tuple[Toleration, ...]) -> bool:
    """Return whether some toleration tolerates the taint. As in core/v1, an empty key with Exists
    tolerates all taints, and an empty effect matches any.
    """
    for toleration in tolerations:
        every_key = not toleration.key and toleration.operator == "Exists"
        if toleration.effect not in ("", taint.effect):
            continue
        same_key = toleration.key == taint.key or every_key
        if same_key and _tolerates_value(toleration, taint.value):
            return True
    return False


def _tolerates_value(toleration: Toleration, value: str) -> bool:
    """Return whether the toleration's value tolerates the taint's. Gt and Lt compare numbers
    (KEP-5471); an API server without them accepts no such toleration.
    """
    operator, bound = toleration.operator, toleration.value
    if operator in ("Gt", "Lt"):
        are_numbers = _CANONICAL.fullmatch(value) and _CANONICAL.fullmatch(bound)
        return bool(are_numbers) and _compares(operator, value, (bound,))
    return operator == "Exists" or (operator in ("", "Equal") and value == bound)


def matches(term: NodeSelectorTerm, node: NodeObserved) -> bool:
    """Return whether all expressions and fields of the term match; an empty term never does."""
    if not term.expressions and not term.fields:
        return False
    if not all(_holds(requirement, node.labels) for requirement in term.expressions):
        return False
    fields = {"metadata.name": node.name}
    return all(_holds(requirement, fields) for requirement in term.fields)


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
    number, bound = atoi(value or ""), atoi(values[0] if len(values) == 1 else "")
    if number is None or bound is None:
        return False
    return number > bound if operator == "Gt" else operator == "Lt" and number < bound


# -- resources of the whole node


def resource_refusal(request: Amounts, node_info: NodeInfo) -> Refusal | None:
    """Return the refusal for the first resource, by name, that the whole node lacks."""
    if fits_node(request, node_info):
        return None
    for name in sorted(request):
        free, asked = node_info.free(name), request[name]
        if free >= asked:
            continue
        if name == PODS:
            return TOO_MANY_PODS.refusal(node_info.name, resource=PODS, asked=1, best=free)
        remedy = _remedy(name, free, asked, node_info)
        return INSUFFICIENT.refusal(
            node_info.name, resource=name, asked=asked, best=free, remedy=remedy
        )
    return None


def _remedy(name: str, free: int, asked: int, node_info: NodeInfo) -> str:
    observed = node_info.observed
    whole = observed.allocatable.get(name, 0) if observed is not None else 0
    if whole <= 0:
        return f"use nodes that offer {name}"
    if whole < asked:
        return "use larger nodes"
    return f"necessary: {format_amount(name, asked - free)} more free {name} on the node"


def fits_node(request: Amounts, node_info: NodeInfo) -> bool:
    """Return whether the whole node has enough, so that `resource_refusal` returns None."""
    requested, allocatable = node_info.requested, node_info.allocatable
    for name, asked in request.items():
        if allocatable.get(name, 0) - requested.get(name, 0) < asked and (
            name != PODS or name in allocatable
        ):
            return False
    return True


# -- many nodes


def allowed_nodes(constraints: Constraints, columns: NodeColumns) -> Bools:
    """Return by slot which nodes `constraint_refusal` does not refuse."""
    allowed = columns.observed_where(
        "availability",
        attrgetter("unschedulable", "ready", "taints"),
        lambda value: _is_available(constraints, *value),
    )
    if constraints.node_selector or constraints.required_affinity:
        allowed &= selected_nodes(constraints, columns)
    if constraints.node_name:
        allowed &= _field("metadata.name", columns).among((constraints.node_name,))
    return allowed


def _is_available(
    constraints: Constraints, unschedulable: bool, ready: bool, taints: tuple[Taint, ...]
) -> bool:
    node = NodeObserved("", "", unschedulable=unschedulable, ready=ready, taints=taints)
    return _availability(constraints, node) is None


def selected_nodes(constraints: Constraints, columns: NodeColumns) -> Bools:
    """Return by slot what `selects` says of each node."""
    selected = columns.all()
    for key, value in constraints.node_selector.items():
        selected &= columns.label(key).among((value,))
    if constraints.required_affinity:
        terms = [matching_nodes(term, columns) for term in constraints.required_affinity]
        selected &= reduce(or_, terms)
    return selected


def untainted_nodes(constraints: Constraints, columns: NodeColumns) -> Bools:
    """Return by slot which nodes have no taint that keeps the pod away."""
    return columns.observed_where(
        "taints",
        attrgetter("taints"),
        lambda taints: untolerated(constraints, taints) is None,
    )


def matching_nodes(term: NodeSelectorTerm, columns: NodeColumns) -> Bools:
    """Return by slot what `matches` says of each node."""
    matching = columns.all()
    if not term.expressions and not term.fields:
        matching[:] = False
    for requirement in term.expressions:
        matching &= _holding(requirement, columns.label(requirement[0]))
    for requirement in term.fields:
        matching &= _holding(requirement, _field(requirement[0], columns))
    return matching


def _field(key: str, columns: NodeColumns) -> Column:
    return columns.observed(
        ("field", key), lambda node: node.name if key == "metadata.name" else None
    )


def _holding(requirement: tuple[str, str, tuple[str, ...]], column: Column) -> Bools:
    """`_holds` of all nodes."""
    _, operator, values = requirement
    if operator == "In":
        return column.among(values)
    if operator == "NotIn":
        return ~column.among(values)
    if operator == "Exists":
        return column.exists()
    if operator == "DoesNotExist":
        return ~column.exists()
    return column.where(lambda value: _compares(operator, value, values))


class ConstraintColumns:
    """For each distinct set of constraints the nodes that it allows, which follow the nodes'
    objects. Bounded: the longest unused set is forgotten first.
    """

    def __init__(self, limit: int, columns: NodeColumns) -> None:
        self._limit, self._columns = limit, columns
        self._allowed: dict[bytes, SlotArray[np.bool_]] = {}

    def allowed(self, constraints: Constraints) -> SlotArray[np.bool_]:
        """Return for each slot whether these constraints allow its node."""
        key = _ENCODER.encode(constraints)
        kept = self._allowed.pop(key, None)
        if kept is None:
            kept = self._array(constraints)
        self._allowed[key] = kept
        if len(self._allowed) > self._limit:
            del self._allowed[next(iter(self._allowed))]
        return kept

    def _array(self, constraints: Constraints) -> SlotArray[np.bool_]:
        return SlotArray(
            self._columns,
            lambda node_info: (
                constraint_refusal(constraints, node_info.observed, node_info.name) is None
            ),
            np.False_,
            lambda: allowed_nodes(constraints, self._columns),
        )
