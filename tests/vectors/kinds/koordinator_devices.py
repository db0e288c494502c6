"""Vectors of requests for devices, and of hints and choices of devices (device_requests,
device_allocation).
"""

from __future__ import annotations

from typing import Any

from shared.kubelet.masks import mask_of
from shared.owned.device_choice import DevicesError, choose_devices, completed, needs_of
from shared.owned.device_hints import device_hints_of
from shared.owned.device_request import DeviceRequestError
from shared.owned.devices import DeviceRequest, FreeDevices
from tests.vectors.koordinator import answers, differences_named
from tests.vectors.koordinator_devices import (
    device_hints_json,
    free_devices,
    holdings_json,
    request_of_devices,
    with_devices,
)

KIND = "device_allocation"

Json = dict[str, Any]


def recognises(doc: Json) -> bool:
    return doc.get("kind") in ("device_requests", KIND)


cases = with_devices
deliberate = differences_named


def check(case: Json) -> list[str]:
    try:
        request = request_of_devices(case["pod"])
    except DeviceRequestError:
        request = None
    if "machine" not in case:
        return _differs("request", _request_json(request), _recorded_request(case["expect"]))
    if request is None:
        return _differs("prefilter", "refused", case["expect"]["prefilter"]["code"])
    free = free_devices(case["devices"], case["held"], case["scoring_strategy"])
    got = _outcome(free, request, case["masks"])
    wanted = [_recorded(answer) for answer in answers(case)]
    return [] if got in wanted else [_first(got, wanted[-1])]


def _request_json(request: DeviceRequest | None) -> Json:
    if request is None:
        return {"refused": True}
    gpu = request.gpu
    return {
        "normalised": {kind: dict(amounts) for kind, amounts in request.amounts.items()},
        "gpu_count": gpu.count,
        "per_gpu": dict(gpu.per_card) or None,
        "gpu_shared": gpu.is_shared,
    }


def _recorded_request(expect: Json) -> Json:
    if expect["status"]["code"] != "Success":
        return {"refused": True}
    return {name: expect[name] for name in ("normalised", "gpu_count", "per_gpu", "gpu_shared")}


def _outcome(free: FreeDevices, request: DeviceRequest, masks: list[list[int] | None]) -> Json:
    got: Json = {
        "normalised": {kind: dict(amounts) for kind, amounts in request.amounts.items()},
        "gpu_shared": request.gpu.is_shared,
        "per_device": None,
        "hints": None,
    }
    try:
        needs = needs_of(free, request)
        got["per_device"] = {
            kind: {"count": needs.count[kind], "per_device": dict(per_card)}
            for kind, per_card in needs.per_card.items()
        }
        got["hints"] = device_hints_json(device_hints_of(free, request))
    except DevicesError:
        pass
    got["allocations"] = [_chosen(free, request, mask) for mask in masks]
    return got


def _chosen(free: FreeDevices, request: DeviceRequest, mask: list[int] | None) -> list[Json] | None:
    try:
        holdings = choose_devices(free, request, None if mask is None else mask_of(mask), True)
    except DevicesError:
        return None
    cards = free.devices
    return holdings_json([completed(cards[held.type][held.minor], held) for held in holdings])


def _recorded(expect: Json) -> Json:
    return {
        **{name: expect[name] for name in ("normalised", "gpu_shared", "per_device")},
        "hints": expect["hints"],
        "allocations": [
            doc["devices"] if doc["status"]["code"] == "Success" else None
            for doc in expect["allocations"]
        ],
    }


def _first(got: Json, recorded: Json) -> str:
    """Return the first field that differs."""
    name = next(name for name in got if got[name] != recorded[name])
    return f"{name}: ours {got[name]}, recorded {recorded[name]}"


def _differs(what: str, ours: object, recorded: object) -> list[str]:
    return [] if ours == recorded else [f"{what}: ours {ours}, recorded {recorded}"]
