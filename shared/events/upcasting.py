"""Upcasting: a stored event of an old schema becomes the newest form of its type before it is
decoded.

An upcaster takes the payload of schema n as a plain dict and returns that of schema n + 1. It must
accept every payload, because old events decode forever.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Upcaster = Callable[[dict[str, Any]], dict[str, Any]]


def _only_new_fields(payload: dict[str, Any]) -> dict[str, Any]:
    """The next schema only adds fields, and their defaults mean unknown."""
    return payload


def _ended(old: dict[str, Any]) -> dict[str, Any]:
    """The cause `node_ended` was removed. No release wrote it: pods outlive their Node object."""
    return {**old, "cause": "deleted"} if old.get("cause") == "node_ended" else old


def _withdrawn(old: dict[str, Any]) -> dict[str, Any]:
    """Six causes and `detail` were removed: every reservation that was withdrawn was on a node that
    ended."""
    return {key: value for key, value in old.items() if key != "detail"} | {"cause": "node_ended"}


# (type, schema that it reads) -> upcaster to the next schema.
UPCASTERS: dict[tuple[str, int], Upcaster] = {
    ("NodeReported", 1): _only_new_fields,
    ("NodeReported", 2): _only_new_fields,
    ("NodeReported", 3): _only_new_fields,
    ("NodeReportChanged", 1): _only_new_fields,
    ("NodeReportChanged", 2): _only_new_fields,
    ("NodeReportChanged", 3): _only_new_fields,
    ("NodeObserved", 1): _only_new_fields,
    ("NodeEnded", 1): _ended,
    ("PodEnded", 1): _ended,
    ("ReservationWithdrawn", 1): _withdrawn,
}


def upcast(type_name: str, schema: int, current: int, payload: dict[str, Any]) -> dict[str, Any]:
    """Walk the payload from `schema` up to `current`. Raises KeyError if a step is missing, which a
    test forbids."""
    for step in range(schema, current):
        payload = UPCASTERS[type_name, step](payload)
    return payload
