"""Label selectors and pod affinity terms of a spec, read strictly. Plain values: they are kept in facts."""

from __future__ import annotations

from typing import Any

from services.scheduler.deciding.constraints.neighbours import Requirement, Selection
from shared.domain import fields
from shared.domain.fields import Json

OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")


def read_selector(doc: Json, path: str, namespaces: list[str]) -> Json:
    """A metav1.LabelSelector within namespaces ([]: all), as it is kept; an absent selector selects nothing."""
    if doc.get("labelSelector") is None:
        return {"namespaces": namespaces, "nothing": True}
    selector, where = fields.mapping(doc, "labelSelector", path), f"{path}.labelSelector"
    labels = fields.texts(selector, "matchLabels", where)
    wanted: list[Any] = [[key, "In", [value]] for key, value in sorted(labels.items())]
    for at, each in fields.objects(selector, "matchExpressions", where):
        operator = fields.text(each, "operator", at)
        if operator not in OPERATORS:
            raise fields.refuse(f"{at}.operator", operator, f"write one of {', '.join(OPERATORS)}")
        wanted.append([fields.text(each, "key", at), operator, list(fields.text_list(each, "values", at))])
    return {"namespaces": namespaces, "labels": wanted}


def with_label_keys(kept: Json, doc: Json, path: str, labels: dict[str, str]) -> Json:
    """matchLabelKeys and mismatchLabelKeys (KEP-3633): the pod's own values join the selector."""
    added: list[Any] = []
    for field, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")):
        keys = fields.text_list(doc, field, path)
        added += [[key, operator, [labels[key]]] for key in keys if key in labels]
    return {**kept, "labels": [*kept["labels"], *added]} if added and "labels" in kept else kept


def selection(kept: Json) -> Selection:
    """The kept form as a value that counts are kept by."""
    wanted: tuple[Requirement, ...] = tuple((key, operator, tuple(values)) for key, operator, values in kept.get("labels", ()))
    return Selection(tuple(kept["namespaces"]), wanted, bool(kept.get("nothing")))
