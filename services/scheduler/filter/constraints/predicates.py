"""Predicates: rules that look at one node's own object alone. Node name, selector, affinity,
taints, readiness, and resources of the whole node.

Semantics: kube-scheduler (component-helpers nodeaffinity, corev1 helpers tolerations), with its
phrases. The answer for a set of constraints is kept by node until the node's object changes
(`ConstraintColumns`). Must not know zones.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from services.scheduler.filter.constraints.constraint import RefusalReason
from services.scheduler.snapshot.node_arrays import Bools, Selection
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
    taint = untolerated(constraints, node)
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


def untolerated(constraints: Constraints, node: NodeObserved) -> Taint | None:
    """Return the first taint that keeps the pod away."""
    for taint in node.taints:
        keeps_away = taint.effect in ("NoSchedule", "NoExecute")
        if keeps_away and not tolerated(taint, constraints.tolerations):
            return taint
    return None


def tolerated(taint: Taint, tolerations: tuple[Toleration, ...]) -> bool:
    """core/v1 semantics: an empty key with Exists tolerates all taints, an empty effect any."""
    for toleration in tolerations:
        every_key = not toleration.key and toleration.operator == "Exists"
        if toleration.effect not in ("", taint.effect):
            continue
        same_key = toleration.key == taint.key or every_key
        if same_key and _tolerates_value(toleration, taint.value):
            return True
    return False


def _tolerates_value(toleration: Toleration, value: str) -> bool:
    """Gt and Lt compare the taint's value with the toleration's (KEP-5471); an API server that does
    not have them accepts none.
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
    """Return whether the whole node has enough: `resource_refusal` as a plain yes or no."""
    requested, allocatable = node_info.requested, node_info.allocatable
    for name, asked in request.items():
        if allocatable.get(name, 0) - requested.get(name, 0) < asked and (
            name != PODS or name in allocatable
        ):
            return False
    return True


# -- many nodes


class _Allowed:
    """One set of constraints: which slots it allows, and the slots that are not answered yet."""

    def __init__(self) -> None:
        self.slots = np.zeros(0, dtype=np.bool_)
        self.unknown: set[int] = set()


class ConstraintColumns:
    """For each distinct set of constraints the nodes that it allows. Bounded: the longest unused
    set is forgotten first.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._columns: dict[bytes, _Allowed] = {}

    def forget(self, slot: int) -> None:
        """The node's object changed."""
        for column in self._columns.values():
            column.unknown.add(slot)

    def allowed(
        self,
        constraints: Constraints,
        nodes: Sequence[NodeInfo | None],
        selection: Selection,
    ) -> Bools:
        """Return for each selected slot whether these constraints allow its node."""
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
        allowed: Bools = column.slots[selection]
        return allowed


def _allows(constraints: Constraints, node_info: NodeInfo | None) -> bool:
    if node_info is None:
        return False
    return constraint_refusal(constraints, node_info.observed, node_info.name) is None
