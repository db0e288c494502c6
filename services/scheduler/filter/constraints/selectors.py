"""Label selectors: read strictly from a spec, kept as plain JSON, and matched against pods."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from shared.domain import fields
from shared.domain.fields import Json
from shared.domain.pod import Pod
from shared.domain.requirements import Requirement, holds, requirements
from shared.events.surroundings_events import NamespaceObserved

Namespaces = Mapping[str, NamespaceObserved]

# Labels by which the pods of one set differ.
_OWN_LABELS = frozenset(
    (
        "statefulset.kubernetes.io/pod-name",
        "apps.kubernetes.io/pod-index",
        "batch.kubernetes.io/job-completion-index",
    )
)


class Selection(msgspec.Struct, frozen=True):
    """A label selector within namespaces. `namespaces` () means all. An empty selector matches
    every pod, `nothing` none.
    """

    namespaces: tuple[str, ...] = ()
    labels: tuple[Requirement, ...] = ()
    nothing: bool = False

    def matches(self, pod: Pod) -> bool:
        """metav1.LabelSelector: all requirements hold."""
        if self.nothing or (self.namespaces and pod.namespace not in self.namespaces):
            return False
        labels = pod.labels
        for requirement in self.labels:  # noqa: SIM110 - runs for each placed pod
            if not holds(requirement, labels):
                return False
        return True

    def within(self, other: Selection) -> Selection:
        """Return the selection of the pods that both select."""
        mine, theirs = set(self.namespaces), set(other.namespaces)
        common = mine & theirs if mine and theirs else mine | theirs
        is_disjoint = bool(mine and theirs) and not common
        labels = tuple(sorted({*self.labels, *other.labels}))
        nothing = is_disjoint or self.nothing or other.nothing
        return Selection(tuple(sorted(common)), labels, nothing)


def likeness(pod: Pod) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Return an equal value for pods that the rules of others hardly distinguish: the namespace
    and the labels, without labels of each pod's own.
    """
    labels = [(key, value) for key, value in pod.labels.items() if key not in _OWN_LABELS]
    return pod.namespace, tuple(sorted(labels))


# -- reading


def read_selector(doc: Json, path: str, namespaces: list[str]) -> Json:
    """Return a metav1.LabelSelector within namespaces ([]: all) as it is kept; an absent selector
    selects nothing.
    """
    if doc.get("labelSelector") is None:
        return {"namespaces": namespaces, "nothing": True}
    return {"namespaces": namespaces, "labels": requirements(doc, "labelSelector", path)}


def with_label_keys(kept: Json, doc: Json, path: str, labels: dict[str, str]) -> Json:
    """Add matchLabelKeys and mismatchLabelKeys (KEP-3633): the pod's own values are selected."""
    added: list[Any] = []
    for field, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")):
        keys = fields.text_list(doc, field, path)
        added += [[key, operator, [labels[key]]] for key in keys if key in labels]
    return {**kept, "labels": [*kept["labels"], *added]} if added and "labels" in kept else kept


# -- from the kept form


def selection(kept: Json, namespaces: Namespaces) -> Selection:
    """Return the kept form as a value that counts are kept by. A selector of namespaces becomes the
    namespaces that it matches.
    """
    if "among" not in kept:
        return _selection(kept, kept["namespaces"])
    selector = _requirements(kept["among"])
    selected = set(kept["namespaces"])
    for name, namespace in namespaces.items():
        if all(holds(requirement, namespace.labels) for requirement in selector):
            selected.add(name)
    return _selection(kept, selected, nothing=not selected)


def selection_in(namespace: str, kept: Json, namespaces: Namespaces) -> Selection:
    """Return the same for one namespace only. A namespace of unknown labels counts as selected,
    because this is asked for what running pods forbid.
    """
    if "among" not in kept:
        return _selection(kept, kept["namespaces"])
    observed = namespaces.get(namespace)
    is_selected = namespace in kept["namespaces"] or observed is None
    if observed is not None and not is_selected:
        selector = _requirements(kept["among"])
        is_selected = all(holds(requirement, observed.labels) for requirement in selector)
    return _selection(kept, (namespace,), nothing=not is_selected)


def _selection(kept: Json, namespaces: Iterable[str], nothing: bool = False) -> Selection:
    labels = _requirements(kept.get("labels", ()))
    return Selection(tuple(sorted(namespaces)), labels, nothing or bool(kept.get("nothing")))


def _requirements(kept: Iterable[Any]) -> tuple[Requirement, ...]:
    return tuple((key, operator, tuple(values)) for key, operator, values in kept)
