"""The requirements of a metav1.LabelSelector: read strictly, kept as plain JSON, and matched."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shared.domain import fields
from shared.domain.fields import Json
from shared.domain.kept import is_among

# (key, operator, values)
Requirement = tuple[str, str, tuple[str, ...]]
OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")


def holds(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    """In, NotIn, Exists, DoesNotExist; a label that is absent is not in anything."""
    key, operator, values = requirement
    value = labels.get(key)
    if operator == "In":
        return value is not None and is_among(value, values)
    if operator == "NotIn":
        return value is None or not is_among(value, values)
    return (value is not None) == (operator == "Exists")


def requirements(doc: Json, field: str, path: str) -> list[Any]:
    """Return the requirements of the metav1.LabelSelector in that field as they are kept: [key,
    operator, values] each.
    """
    selector, where = fields.mapping(doc, field, path), f"{path}.{field}"
    labels = fields.texts(selector, "matchLabels", where)
    kept: list[Any] = [[key, "In", [value]] for key, value in sorted(labels.items())]
    for path_of_expression, expression in fields.objects(selector, "matchExpressions", where):
        operator = fields.text(expression, "operator", path_of_expression)
        if operator not in OPERATORS:
            problem = f"{path_of_expression}.operator"
            raise fields.refuse(problem, operator, f"write one of {', '.join(OPERATORS)}")
        key = fields.text(expression, "key", path_of_expression)
        values = fields.text_list(expression, "values", path_of_expression)
        kept.append([key, operator, list(values)])
    return kept
