"""Required pod affinity and anti-affinity, both ways: what a pod requires of other pods, and what
they require of it.

Semantics: kube-scheduler's InterPodAffinity (1.36).

1. A node without the topology label satisfies no affinity and breaks no anti-affinity.
2. Only pods that match all terms of an affinity satisfy one of them. The first pod of a group that
   must be with itself may use any node with the labels, as long as no pod of the group is on one.
3. Pods that are being deleted still count.
4. A pod that selects namespaces by labels waits until the labels of its own namespace are known:
   those of others are known then, too.
5. If a pod with anti-affinity ends, every node of its topology domain may be open again, also to
   pods without rules (`OpenedDomains`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import and_, or_
from typing import Any, NamedTuple

from services.scheduler.filter.constraints.constraint import (
    Check,
    ClusterView,
    Constraint,
    RefusalReason,
    label_of,
)
from services.scheduler.filter.constraints.placed_pods import PlacedPods
from services.scheduler.filter.constraints.selectors import (
    Selection,
    read_selector,
    selection,
    selection_in,
    with_label_keys,
)
from services.scheduler.snapshot.node_arrays import Bools
from services.scheduler.snapshot.node_columns import NodeCounts
from services.scheduler.snapshot.node_info import NodeInfo
from shared.domain import fields
from shared.domain.constraints import REQUIRED
from shared.domain.fields import Json
from shared.domain.pod import Pod
from shared.domain.refusal import Reason, Refusal
from shared.domain.requirements import requirements
from shared.events.cluster_events import NodeObserved

ANTI_AFFINITY = "podAntiAffinity"
# A domain of one node.
HOSTNAME = "kubernetes.io/hostname"
# Sets of labels for which the rules that select them are kept.
MOST_LABELS = 4096

NO_AFFINITY = RefusalReason(
    name=Reason.POD_AFFINITY,
    phrase="node(s) didn't match pod affinity rules",
    remedy="start a pod of its affinity's selection there first, or change the affinity",
)
_WAIT = "use nodes of another topology value, or wait until the other pod ends"
OWN_ANTI_AFFINITY = RefusalReason(
    name=Reason.POD_ANTI_AFFINITY,
    phrase="node(s) didn't match pod anti-affinity rules",
    remedy=_WAIT,
)
OTHERS_ANTI_AFFINITY = RefusalReason(
    name=Reason.POD_ANTI_AFFINITY,
    phrase="node(s) didn't satisfy existing pods anti-affinity rules",
    remedy=_WAIT,
)
LABELS_UNKNOWN = RefusalReason(
    name=Reason.POD_AFFINITY,
    phrase="node(s) were not checked: the labels of namespace %s are not known yet",
    remedy="wait until the scheduler has observed the namespace",
)


class Term(NamedTuple):
    """Pods of the selection within one value of the topology label `key`."""

    selection: Selection
    key: str


class _Terms(Constraint):
    """What both kinds read. Keeps [{key, selector}, ...]; `among` in a selector is its selector of
    namespaces.
    """

    def __init__(self, field: str) -> None:
        self.name = field
        self.handles = frozenset((f"spec.affinity.{field}.{REQUIRED}",))

    def read(self, spec: Json, pod: Pod) -> Any:
        path = f"spec.affinity.{self.name}"
        affinity = fields.mapping(spec, "affinity", "spec")
        rules = fields.mapping(affinity, self.name, "spec.affinity")
        terms = fields.objects(rules, REQUIRED, path)
        return [_term(doc, where, pod) for where, doc in terms] or None

    def terms(self, kept: Any, view: ClusterView) -> list[Term]:
        namespaces = view.cluster_objects.namespaces
        return [Term(selection(term["selector"], namespaces), term["key"]) for term in kept or ()]


def _term(doc: Json, path: str, pod: Pod) -> Json:
    key = fields.text(doc, "topologyKey", path)
    if not key:
        remedy = "write a label of nodes, kubernetes.io/hostname for one node each"
        raise fields.refuse(f"{path}.topologyKey", key, remedy)
    namespaces, among = sorted(fields.text_list(doc, "namespaces", path)), list[Any]()
    if doc.get("namespaceSelector") is not None:
        among = requirements(doc, "namespaceSelector", path)
        namespaces = namespaces if among else []
    else:
        namespaces = namespaces or [pod.namespace]
    selector = with_label_keys(read_selector(doc, path, namespaces), doc, path, pod.labels)
    return {"key": key, "selector": {**selector, "among": among} if among else selector}


def _unknown(pod: Pod, kept: Any, view: ClusterView) -> Check | None:
    """No node passes while namespaces are selected by labels that are not known."""
    if pod.namespace in view.cluster_objects.namespaces:
        return None
    if not any("among" in term["selector"] for term in kept or ()):
        return None
    return lambda node_info: LABELS_UNKNOWN.refusal(node_info.name, pod.namespace)


class PodAffinity(_Terms):
    """With other pods."""

    reasons = (NO_AFFINITY, LABELS_UNKNOWN)

    def __init__(self) -> None:
        super().__init__("podAffinity")

    def check(self, pod: Pod, kept: Any, view: ClusterView) -> Check | None:
        terms, unknown = self.terms(kept, view), _unknown(pod, kept, view)
        if unknown is not None or not terms:
            return unknown
        group = reduce(Selection.within, (term.selection for term in terms))
        counts = view.placed_pods.counted(group)
        domains = [_domains(term.key, counts, view) for term in terms]
        is_first = not any(domains) and group.matches(pod)

        def check(node_info: NodeInfo) -> Refusal | None:
            for term, values in zip(terms, domains, strict=True):
                value = label_of(node_info, term.key)
                if value is None or not (is_first or value in values):
                    return NO_AFFINITY.refusal(node_info.name, term.key)
            return None

        return check

    def passing(self, pod: Pod, kept: Any, view: ClusterView) -> Bools | None:
        terms = self.terms(kept, view)
        if not terms or _unknown(pod, kept, view) is not None:
            return super().passing(pod, kept, view)
        group = reduce(Selection.within, (term.selection for term in terms))
        has_pods = view.placed_pods.counted(group).by_slot() > 0
        columns = [view.columns.label(term.key) for term in terms]
        domains = [column.shared_with(has_pods) for column in columns]
        if group.matches(pod) and not any(nodes.any() for nodes in domains):
            domains = [column.exists() for column in columns]
        return reduce(and_, domains)


def _rules_of_placed_pods(view: ClusterView) -> object:
    return view.placed_pods.keeping(ANTI_AFFINITY)


class PodAntiAffinity(_Terms):
    """Apart from other pods, by the rules of either."""

    reasons = (OWN_ANTI_AFFINITY, OTHERS_ANTI_AFFINITY, LABELS_UNKNOWN)
    # The rules of running pods concern every pod.
    depends_on = staticmethod(_rules_of_placed_pods)

    def __init__(self) -> None:
        super().__init__(ANTI_AFFINITY)

    def check(self, pod: Pod, kept: Any, view: ClusterView) -> Check | None:
        if not kept and not view.placed_pods.keeping(self.name):
            return None
        unknown = _unknown(pod, kept, view)
        if unknown is not None:
            return unknown
        taken: list[tuple[str, set[str], RefusalReason]] = []
        for term in self.terms(kept, view):
            values = _domains(term.key, view.placed_pods.counted(term.selection), view)
            if values:
                taken.append((term.key, values, OWN_ANTI_AFFINITY))
        for key, values in sorted(self._forbidden_by_others(pod, view).items()):
            if values:
                taken.append((key, values, OTHERS_ANTI_AFFINITY))
        if not taken:
            return None

        def check(node_info: NodeInfo) -> Refusal | None:
            for key, values, reason in taken:
                if label_of(node_info, key) in values:
                    return reason.refusal(node_info.name, key)
            return None

        return check

    def passing(self, pod: Pod, kept: Any, view: ClusterView) -> Bools | None:
        if _unknown(pod, kept, view) is not None:
            return super().passing(pod, kept, view)
        placed, taken = view.placed_pods, dict[str, list[NodeCounts]]()
        for term in self.terms(kept, view):
            taken.setdefault(term.key, []).append(placed.counted(term.selection))
        for key, nodes in self._rules_against(pod, view):
            taken.setdefault(key, []).append(nodes)
        forbidden: Bools | None = None
        for key, counts in taken.items():
            has_pods = reduce(or_, (nodes.by_slot() > 0 for nodes in counts))
            in_domain = view.columns.label(key).shared_with(has_pods)
            forbidden = in_domain if forbidden is None else forbidden | in_domain
        return None if forbidden is None else ~forbidden

    def _forbidden_by_others(self, pod: Pod, view: ClusterView) -> dict[str, set[str]]:
        """Topology label -> its values on nodes of running pods with rules that select this pod."""
        forbidden: dict[str, set[str]] = {}
        for key, nodes in self._selecting(pod, view):
            forbidden.setdefault(key, set()).update(_domains(key, nodes, view))
        return forbidden

    def _selecting(self, pod: Pod, view: ClusterView) -> list[tuple[str, NodeCounts]]:
        """Topology label and nodes of the running pods' rules that select this pod."""
        namespaces = view.cluster_objects.namespaces
        selecting = []
        for terms, nodes in view.placed_pods.keeping(self.name):
            for term in terms:
                if selection_in(pod.namespace, term["selector"], namespaces).matches(pod):
                    selecting.append((term["key"], nodes))
        return selecting

    def _rules_against(self, pod: Pod, view: ClusterView) -> list[tuple[str, NodeCounts]]:
        """`_selecting`, kept for pods of equal labels until a rule comes or goes, or the
        namespace's labels change.
        """
        if not view.placed_pods.keeping(self.name):
            return []
        derived = view.placed_pods.derived(self.name)
        namespace = view.cluster_objects.namespaces.get(pod.namespace)
        key = pod.namespace, tuple(sorted(pod.labels.items()))
        selecting = derived.get(key)
        if selecting is None or selecting[0] is not namespace:
            if len(derived) >= MOST_LABELS:
                derived.clear()
            selecting = derived[key] = namespace, self._selecting(pod, view)
        rules: list[tuple[str, NodeCounts]] = selecting[1]
        return rules


def _domains(key: str, counts: Mapping[str, int], view: ClusterView) -> set[str]:
    """The label's values on the counted nodes."""
    return {value for node in counts if (value := view.label(node, key)) is not None}


class OpenedDomains:
    """Topology labels with the values that may be open again since the last look."""

    def __init__(self) -> None:
        self._domains: set[tuple[str, str]] = set()

    def note_pod_gone(self, kept: Mapping[str, Any], node: NodeObserved | None) -> None:
        """A pod for which constraints keep this is not on that node any more."""
        labels = node.labels if node is not None else {}
        for term in kept.get(ANTI_AFFINITY, ()):
            if term["key"] in labels:
                self._domains.add((term["key"], labels[term["key"]]))

    def note_labels_gone(self, placed_pods: PlacedPods, node: NodeObserved | None) -> None:
        """The node does not have these labels any more: its pods' rules hold elsewhere now."""
        for kept, nodes in placed_pods.keeping(ANTI_AFFINITY):
            if node is not None and node.name in nodes:
                self.note_pod_gone({ANTI_AFFINITY: kept}, node)

    def take(self, nodes: Mapping[str, NodeInfo]) -> list[str]:
        """Return the nodes of these domains, once. Nodes that changed are looked at anyway, so that
        domains of one node do not count.
        """
        domains = {domain for domain in self._domains if domain[0] != HOSTNAME}
        self._domains = set()
        opened = []
        for name, node_info in nodes.items() if domains else ():
            observed = node_info.observed
            if observed is not None and any(
                observed.labels.get(key) == value for key, value in domains
            ):
                opened.append(name)
        return opened
