"""Vectors of Koordinator's choice of devices, which Topolog lacks."""

from __future__ import annotations

from typing import Any

KIND = "koordinator_devices"
IS_ABSENT = True

Json = dict[str, Any]


def recognises(doc: Json) -> bool:
    return doc.get("kind") in ("device_requests", "device_allocation", "node_with_devices")


def check(case: Json) -> list[str]:
    return [f"{case['id']}: no choice of devices"]
