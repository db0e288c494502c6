"""Label selectors and pod affinity terms of a spec, read strictly. Plain values: they are kept in
facts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from services.scheduler.filter.constraints.neighbours import Requirement, Selection, holds
from shared.domain import fields
from shared.domain.fields import Json
from shared.events.surroundings_events import NamespaceObserved

Namespaces = Mapping[str, NamespaceObserved]
OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")


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
