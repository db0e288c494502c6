"""Topology spread with DoNotSchedule: no domain may be ahead of the emptiest by more than maxSkew.

Semantics: kube-scheduler's PodTopologySpread (1.36). Domains are those of nodes that have the
topology labels and that count: by default the nodes that the pod's selector and affinity allow,
whatever their taints (`nodeAffinityPolicy: Honor`, `nodeTaintsPolicy: Ignore`). Pods that are being
deleted do not count. An empty selector matches every pod, but only the newcomer counts for it.
"""

from __future__ import annotations

from collections import Counter
from functools import reduce
from operator import and_
from typing import Any, NamedTuple

import numpy as np

from services.scheduler.filter.constraints.constraint import (
    Check,
    ClusterView,
    Constraint,
    RefusalReason,
    label_of,
)
from services.scheduler.filter.constraints.predicates import (
    selected_nodes,
    selects,
    untainted_nodes,
    untolerated,
)
from services.scheduler.filter.constraints.selectors import (
    read_selector,
    selection,
    with_label_keys,
)
from services.scheduler.snapshot.node_arrays import Bools
from services.scheduler.snapshot.node_info import NodeInfo
from shared.domain import fields
from shared.domain.fields import Json
from shared.domain.pod import Pod
from shared.domain.refusal import Reason, Refusal

_PHRASE = "node(s) didn't match pod topology spread constraints"
TOO_UNEVEN = RefusalReason(
    name=Reason.TOPOLOGY_SPREAD,
    phrase=_PHRASE,
    remedy="make room in the emptier domains, or raise maxSkew",
)
NO_LABEL = RefusalReason(
    name=Reason.TOPOLOGY_SPREAD,
    phrase=f"{_PHRASE} (missing required label)",
    remedy="use nodes with the label, or change the constraint's topologyKey",
)


class _Spread(NamedTuple):
    """One constraint of the pod: the label, how many pods of the selection each of its values has,
    the least of them, whether the pod itself counts, and the most skew.
    """

    key: str
    counts: Counter[str]
    least: int
    own: int
    most_skew: int


class TopologySpread(Constraint):
    """Keeps [{key, skew, domains, selector}, ...]; `anywhere` and `untainted` if the policies are
    not the default ones.
    """

    name = "topologySpread"
    handles = frozenset(("spec.topologySpreadConstraints",))
    reasons = (TOO_UNEVEN, NO_LABEL)

    def read(self, spec: Json, pod: Pod) -> Any:
        constraints = fields.objects(spec, "topologySpreadConstraints", "spec")
        return [
            _kept(doc, path, pod)
            for path, doc in constraints
            if doc.get("whenUnsatisfiable") != "ScheduleAnyway"
        ] or None

    def check(self, pod: Pod, kept: Any, view: ClusterView) -> Check | None:
        keys = [constraint["key"] for constraint in kept]
        labelled = [node_info for node_info in view.nodes.values() if _has_labels(node_info, keys)]
        spreads = [_spread(constraint, pod, labelled, view) for constraint in kept]

        def check(node_info: NodeInfo) -> Refusal | None:
            for spread in spreads:
                value = label_of(node_info, spread.key)
                if value is None:
                    return NO_LABEL.refusal(node_info.name, spread.key)
                skew = spread.counts.get(value, 0) + spread.own - spread.least
                if skew > spread.most_skew:
                    return TOO_UNEVEN.refusal(node_info.name, spread.key)
            return None

        return check

    def passing(self, pod: Pod, kept: Any, view: ClusterView) -> Bools | None:
        columns = [view.columns.label(constraint["key"]) for constraint in kept]
        labelled = reduce(and_, (column.exists() for column in columns))
        passing = labelled
        for constraint, column in zip(kept, columns, strict=True):
            selected = selection(constraint["selector"], {})
            counts = (
                view.placed_pods.counted(selected, leaving=False).by_slot()
                if selected.labels
                else np.zeros(len(labelled), dtype=np.int32)
            )
            sums = column.sums(counts, labelled & _counting(constraint, pod, view))
            least = sums.least if sums.values >= constraint["domains"] else 0
            most = constraint["skew"] + least - int(selected.matches(pod))
            passing = passing & (sums.by_slot() <= most)
        return passing


def _counting(kept: Any, pod: Pod, view: ClusterView) -> Bools:
    """`_counts` of all nodes."""
    counting = view.columns.all()
    if not kept.get("anywhere"):
        counting &= selected_nodes(pod.constraints, view.columns)
    if kept.get("untainted"):
        counting &= untainted_nodes(pod.constraints, view.columns)
    return counting


def _kept(doc: Json, path: str, pod: Pod) -> Json:
    selector = with_label_keys(read_selector(doc, path, [pod.namespace]), doc, path, pod.labels)
    skew, domains = fields.integer(doc, "maxSkew", path), fields.integer(doc, "minDomains", path)
    key = fields.text(doc, "topologyKey", path)
    if not key or skew < 1:
        raise fields.refuse(path, doc, "write a topologyKey, and a maxSkew of 1 or more")
    kept: dict[str, Any] = {"key": key, "skew": skew, "domains": domains, "selector": selector}
    if _policy(doc, "nodeAffinityPolicy", path) == "Ignore":
        kept["anywhere"] = True
    if _policy(doc, "nodeTaintsPolicy", path) == "Honor":
        kept["untainted"] = True
    return kept


def _policy(doc: Json, field: str, path: str) -> str:
    policy = fields.text(doc, field, path)
    if policy not in ("", "Honor", "Ignore"):
        raise fields.refuse(f"{path}.{field}", policy, "write Honor or Ignore")
    return policy


def _has_labels(node_info: NodeInfo, keys: list[str]) -> bool:
    """Return whether the node has every topology label of the pod's spread constraints."""
    return node_info.observed is not None and all(key in node_info.observed.labels for key in keys)


def _counts(node_info: NodeInfo, pod: Pod, kept: Any) -> bool:
    """Return whether the node's pods and its domain count."""
    node = node_info.observed
    if node is None or not (kept.get("anywhere") or selects(pod.constraints, node)):
        return False
    return not kept.get("untainted") or untolerated(pod.constraints, node.taints) is None


def _spread(kept: Any, pod: Pod, labelled: list[NodeInfo], view: ClusterView) -> _Spread:
    selected = selection(kept["selector"], {})
    by_node = view.placed_pods.counted(selected, leaving=False) if selected.labels else {}
    counts: Counter[str] = Counter()
    for node_info in labelled:
        if _counts(node_info, pod, kept):
            counts[label_of(node_info, kept["key"]) or ""] += by_node.get(node_info.name, 0)
    least = min(counts.values(), default=0) if len(counts) >= kept["domains"] else 0
    return _Spread(kept["key"], counts, least, int(selected.matches(pod)), kept["skew"])
