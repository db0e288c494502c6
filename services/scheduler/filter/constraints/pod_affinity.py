"""Required pod affinity and anti-affinity, both ways: what a pod asks of its neighbours, and what
they ask of it.

Semantics: kube-scheduler's InterPodAffinity (1.36). A node without the topology label satisfies no
affinity and breaks no anti-affinity. Only who matches all terms of an affinity satisfies one of
them. The first pod of a group that wants to be beside itself may go anywhere, where nobody of the
group is on a node with such a label. Pods being deleted still count. A pod that selects namespaces
by labels waits until those of its own are known: then others' are too.

Which nodes the rules of running pods may have opened: where one with anti-affinity ends, every
node of its topology domain may be open again, also to pods that have no rule themselves; its own
node is looked at anyway. Must not know who waits.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any, NamedTuple

from services.scheduler.filter.constraints.constraint import Check, ClusterView, label_of
from services.scheduler.filter.constraints.placed_pods import PlacedPods
from services.scheduler.filter.constraints.selectors import (
    Selection,
    read_selector,
    requirements,
    selection,
    selection_in,
    with_label_keys,
)
from services.scheduler.snapshot.node_info import NodeInfo
from shared.domain import fields
from shared.domain.constraints import REQUIRED
from shared.domain.fields import Json
from shared.domain.pod import Pod
from shared.domain.refusal import Reason, Refusal
from shared.events.cluster_events import NodeObserved

ANTI_AFFINITY = "podAntiAffinity"


class Term(NamedTuple):
    """Pods of the selection within one value of the topology label `key`."""

    selection: Selection
    key: str


class _Terms:
    """What both kinds read. Kept: [{key, selector}, ...]. `among` in a selector is its selector of
    namespaces.
    """

    def __init__(self, field: str) -> None:
        self.name = field
        self.handles = frozenset((f"spec.affinity.{field}.{REQUIRED}",))

    def read(self, spec: Json, pod: Pod) -> Any:
        path = f"spec.affinity.{self.name}"
        affinity = fields.mapping(
            fields.mapping(spec, "affinity", "spec"), self.name, "spec.affinity"
        )
        return [
            _term(doc, where, pod) for where, doc in fields.objects(affinity, REQUIRED, path)
        ] or None

    def terms(self, kept: Any, view: ClusterView) -> list[Term]:
        known = view.cluster_objects.namespaces
        return [Term(selection(each["selector"], known), each["key"]) for each in kept or ()]


def _term(doc: Json, path: str, pod: Pod) -> Json:
    key = fields.text(doc, "topologyKey", path)
    if not key:
        raise fields.refuse(
            f"{path}.topologyKey",
            key,
            "write a label of nodes, kubernetes.io/hostname for one node each",
        )
    named, among = sorted(fields.text_list(doc, "namespaces", path)), list[Any]()
    if doc.get("namespaceSelector") is not None:
        among = requirements(doc, "namespaceSelector", path)
        named = named if among else []
    else:
        named = named or [pod.namespace]
    selector = with_label_keys(read_selector(doc, path, named), doc, path, pod.labels)
    return {"key": key, "selector": {**selector, "among": among} if among else selector}


def _unknown(pod: Pod, kept: Any, reason: Reason, view: ClusterView) -> Check | None:
    """No node as long as namespaces are selected by labels that are not known."""
    if pod.namespace in view.cluster_objects.namespaces or not any(
        "among" in each["selector"] for each in kept or ()
    ):
        return None
    return lambda node_info: Refusal(
        node_info.name, reason, f"the labels of namespace {pod.namespace} are not known yet"
    )


class PodAffinity(_Terms):
    """Beside others."""

    def __init__(self) -> None:
        super().__init__("podAffinity")

    def check(self, pod: Pod, kept: Any, view: ClusterView) -> Check | None:
        if not kept:
            return None
        terms, unknown = self.terms(kept, view), _unknown(pod, kept, Reason.POD_AFFINITY, view)
        if unknown is not None or not terms:
            return unknown
        group = reduce(Selection.within, (term.selection for term in terms))
        counts = view.placed_pods.counted(group)
        domains = [_domains(term.key, counts, view) for term in terms]
        alone = not any(domains) and group.matches(pod)

        def check(node_info: NodeInfo) -> Refusal | None:
            for term, held in zip(terms, domains, strict=True):
                value = label_of(node_info, term.key)
                if value is None or not (alone or value in held):
                    return Refusal(node_info.name, Reason.POD_AFFINITY, term.key)
            return None

        return check


class PodAntiAffinity(_Terms):
    """Apart from others, whoever of the two says so."""

    def __init__(self) -> None:
        super().__init__(ANTI_AFFINITY)

    def check(self, pod: Pod, kept: Any, view: ClusterView) -> Check | None:
        if not kept and not view.placed_pods.keeping(self.name):
            return None
        unknown = _unknown(pod, kept, Reason.POD_ANTI_AFFINITY, view)
        if unknown is not None:
            return unknown
        counted, terms = view.placed_pods.counted, self.terms(kept, view)
        own = [(term.key, _domains(term.key, counted(term.selection), view)) for term in terms]
        others: dict[str, set[str]] = {}
        for held, nodes in view.placed_pods.keeping(self.name):
            for each in held:
                if selection_in(
                    pod.namespace, each["selector"], view.cluster_objects.namespaces
                ).matches(pod):
                    others.setdefault(each["key"], set()).update(_domains(each["key"], nodes, view))
        barred = [(key, held, "its own rule") for key, held in own if held]
        barred += [
            (key, held, "a running pod's rule") for key, held in sorted(others.items()) if held
        ]
        if not barred:
            return None

        def check(node_info: NodeInfo) -> Refusal | None:
            for key, held, whose in barred:
                if label_of(node_info, key) in held:
                    return Refusal(node_info.name, Reason.POD_ANTI_AFFINITY, f"{key}, {whose}")
            return None

        return check


def _domains(key: str, counts: Mapping[str, int], view: ClusterView) -> set[str]:
    """The label's values on the nodes that are counted."""
    return {value for node in counts if (value := view.label(node, key)) is not None}


_HOST = "kubernetes.io/hostname"
"""A domain of one node."""


class OpenedDomains:
    """Since the last look: topology labels with their values."""

    def __init__(self) -> None:
        self._domains: set[tuple[str, str]] = set()

    def note_pod_gone(self, kept: Mapping[str, Any], node: NodeObserved | None) -> None:
        """A pod for which constraints keep this is on that node no more, or otherwise."""
        labels = node.labels if node is not None else {}
        self._domains |= {
            (rule["key"], labels[rule["key"]])
            for rule in kept.get(ANTI_AFFINITY, ())
            if rule["key"] in labels
        }

    def note_labels_gone(self, placed_pods: PlacedPods, node: NodeObserved | None) -> None:
        """The node is as this no more: its pods' rules hold elsewhere now, or nowhere."""
        for kept, nodes in placed_pods.keeping(ANTI_AFFINITY):
            if node is not None and node.name in nodes:
                self.note_pod_gone({ANTI_AFFINITY: kept}, node)

    def take(self, nodes: Mapping[str, NodeInfo]) -> list[str]:
        """The nodes of these domains, once."""
        domains, self._domains = {domain for domain in self._domains if domain[0] != _HOST}, set()
        if not domains:
            return []
        seen = ((name, node_info.observed) for name, node_info in nodes.items())
        return [
            name
            for name, at in seen
            if at is not None and any(at.labels.get(key) == value for key, value in domains)
        ]
