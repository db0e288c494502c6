"""Label selectors and pod affinity terms of a spec, read strictly. Plain values: they are kept in
facts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from shared.domain import fields
from shared.domain.fields import Json
from shared.domain.kept import is_value
from shared.domain.pod import Pod
from shared.events.surroundings_events import NamespaceObserved

Namespaces = Mapping[str, NamespaceObserved]
OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")


Requirement = tuple[str, str, tuple[str, ...]]


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
        return all(holds(requirement, pod.labels) for requirement in self.labels)

    def within(self, other: Selection) -> Selection:
        """The pods of both."""
        common = set(self.namespaces or other.namespaces).intersection(
            other.namespaces or self.namespaces
        )
        apart = bool(self.namespaces and other.namespaces) and not common
        labels = tuple(sorted({*self.labels, *other.labels}))
        return Selection(tuple(sorted(common)), labels, apart or self.nothing or other.nothing)


_OWN = frozenset(
    (
        "statefulset.kubernetes.io/pod-name",
        "apps.kubernetes.io/pod-index",
        "batch.kubernetes.io/job-completion-index",
    )
)
"""Labels by which the pods of one set differ."""


def likeness(pod: Pod) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Equal for pods that the rules of others can hardly tell apart: their namespace, and labels
    but those of each its own.
    """
    return pod.namespace, tuple(
        sorted((key, value) for key, value in pod.labels.items() if key not in _OWN)
    )


def holds(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    """In, NotIn, Exists, DoesNotExist; a label that is absent is not in anything."""
    key, operator, values = requirement
    value = labels.get(key)
    if operator == "In":
        return value is not None and any(is_value(value, each) for each in values)
    if operator == "NotIn":
        return value is None or not any(is_value(value, each) for each in values)
    return (value is not None) == (operator == "Exists")


def read_selector(doc: Json, path: str, namespaces: list[str]) -> Json:
    """A metav1.LabelSelector within namespaces ([]: all), as it is kept; an absent selector selects
    nothing.
    """
    if doc.get("labelSelector") is None:
        return {"namespaces": namespaces, "nothing": True}
    return {"namespaces": namespaces, "labels": requirements(doc, "labelSelector", path)}


def requirements(doc: Json, field: str, path: str) -> list[Any]:
    """The requirements of the metav1.LabelSelector in that field, as they are kept: [key, operator,
    values] each.
    """
    selector, where = fields.mapping(doc, field, path), f"{path}.{field}"
    labels = fields.texts(selector, "matchLabels", where)
    wanted: list[Any] = [[key, "In", [value]] for key, value in sorted(labels.items())]
    for at, each in fields.objects(selector, "matchExpressions", where):
        operator = fields.text(each, "operator", at)
        if operator not in OPERATORS:
            raise fields.refuse(f"{at}.operator", operator, f"write one of {', '.join(OPERATORS)}")
        wanted.append(
            [fields.text(each, "key", at), operator, list(fields.text_list(each, "values", at))]
        )
    return wanted


def with_label_keys(kept: Json, doc: Json, path: str, labels: dict[str, str]) -> Json:
    """matchLabelKeys and mismatchLabelKeys (KEP-3633): the pod's own values join the selector."""
    added: list[Any] = []
    for field, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")):
        keys = fields.text_list(doc, field, path)
        added += [[key, operator, [labels[key]]] for key in keys if key in labels]
    return {**kept, "labels": [*kept["labels"], *added]} if added and "labels" in kept else kept


def selection(kept: Json, known: Namespaces) -> Selection:
    """The kept form as a value that counts are kept by; a selector of namespaces becomes those
    whose labels it holds.
    """
    if "among" not in kept:
        return _selection(kept, kept["namespaces"])
    among = _plain(kept["among"])
    found = {
        name
        for name, each in known.items()
        if all(holds(requirement, each.labels) for requirement in among)
    }
    return _selection(
        kept, found.union(kept["namespaces"]), none=not found and not kept["namespaces"]
    )


def selection_in(namespace: str, kept: Json, known: Namespaces) -> Selection:
    """The same as far as it concerns one namespace. One whose labels are not known yet counts as
    selected: this is asked for what running pods forbid."""
    if "among" not in kept:
        return _selection(kept, kept["namespaces"])
    each, named = known.get(namespace), namespace in kept["namespaces"]
    chosen = (
        named
        or each is None
        or all(holds(requirement, each.labels) for requirement in _plain(kept["among"]))
    )
    return _selection(kept, (namespace,), none=not chosen)


def _selection(kept: Json, namespaces: Iterable[str], none: bool = False) -> Selection:
    return Selection(
        tuple(sorted(namespaces)), _plain(kept.get("labels", ())), none or bool(kept.get("nothing"))
    )


def _plain(wanted: Iterable[Any]) -> tuple[Requirement, ...]:
    return tuple((key, operator, tuple(values)) for key, operator, values in wanted)
