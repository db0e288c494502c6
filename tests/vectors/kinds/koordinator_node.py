"""Vectors of one decision on one node, with and without devices, and of pods placed and released
one after another (owned_node, node_with_devices, owned_sequences).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from unittest.mock import patch

import msgspec

from shared.domain.policies import NONE, Policy
from shared.domain.refusal import Refusal
from shared.kubelet.cpuset import format_cpus
from shared.kubelet.masks import enumerate_masks, mask_of
from shared.owned.admit import admit
from shared.owned.allocate import Trial, allocate, roomiest_last, trial_of
from shared.owned.device_choice import DevicesError
from shared.owned.device_hints import device_hints_of
from shared.owned.devices import DeviceRequest, FreeDevices
from shared.owned.free import Free, free_of
from shared.owned.hints import hints_of, offered
from shared.owned.policy import combined_policy
from shared.owned.values import Allocation, Holding, OwnedNode, OwnedRequest
from tests.vectors.koordinator import (
    answers,
    differences_named,
    holding_json,
    holding_of,
    mask_json,
    node_of,
    request_of,
    with_machines,
)
from tests.vectors.koordinator_devices import (
    device_hints_json,
    free_devices,
    holdings_json,
    request_of_devices,
)

KIND = "owned_node"

Json = dict[str, Any]


def recognises(doc: Json) -> bool:
    return doc.get("kind") in (KIND, "node_with_devices", "owned_sequences")


cases = with_machines
deliberate = differences_named


def check(case: Json) -> list[str]:
    node = node_of(case["node"], case["config"], case["nesting"])
    if "ops" in case:
        return _check_sequence(case, node)
    holdings = [holding_of(doc) for doc in case["ledger"]]
    counted = _by_records(node, holdings)
    request = request_of(case["pod"], case["config"]["default_cpu_bind_policy"])
    if "devices" in case:
        return _check_decision(node, holdings, request, case, case["config"]["scoring_weights"])
    return [
        *_differs("free", _amounts_json(counted), case["free"]),
        *_differs("available_cpus", format_cpus(counted.cpus), case["available_cpus"]),
        *_check_decision(node, holdings, request, case, case["config"]["scoring_weights"]),
        *_check_trials(node, counted, request, case["trials"]),
    ]


def _by_records(node: OwnedNode, holdings: Sequence[Holding]) -> Free:
    """Return what is free as Koordinator counts: a CPU set without a record of zones does not
    lessen the amounts (quirk `cpuset-without-zone-record-not-counted`).
    """
    records = [msgspec.structs.replace(holding, cpus=0) for holding in holdings]
    free = free_of(node, holdings)
    return msgspec.structs.replace(free, amounts=free_of(node, records).amounts)


def _check_sequence(case: Json, node: OwnedNode) -> list[str]:
    """Compare each operation. The next one goes on from Koordinator's state, so that a difference
    is not counted twice.
    """
    holdings: dict[str, Holding] = {}
    wrong: list[str] = []
    for number, op in enumerate(case["ops"]):
        if op["op"] == "release":
            holdings.pop(op["uid"], None)
        else:
            request = request_of(op["pod"], case["config"]["default_cpu_bind_policy"])
            differences = _check_decision(node, list(holdings.values()), request, op)
            wrong += [f"op {number}: {difference}" for difference in differences]
            if _is_placed(op["expect"]):
                holdings[op["uid"]] = _recorded(op["expect"], request)
        free = _by_records(node, list(holdings.values()))
        wrong += _differs(f"op {number}: free", _amounts_json(free), op["free_after"])
        cpus = format_cpus(free.cpus)
        wrong += _differs(f"op {number}: cpus", cpus, op["available_cpus_after"])
    return wrong


def _recorded(expect: Json, request: OwnedRequest) -> Holding:
    doc = {"cpus": expect["cpus"], "zones": expect["allocated"]}
    return holding_of({**doc, "exclusive": request.cpu_exclusive})


def _check_decision(
    node: OwnedNode,
    holdings: Sequence[Holding],
    request: OwnedRequest,
    case: Json,
    other_weights: Json | None = None,
) -> list[str]:
    """Compare the outcome, and the hints if the vectors have any."""
    devices = _devices_of(case)
    outcome = admit(node, free_of(node, holdings), request, devices)
    got = _outcome_json(outcome, devices)
    wanted = answers(case)
    if any(_is_panic(expect) for expect in wanted):
        return []
    differences: list[str] = []
    for expect in wanted:
        differences = _differs("outcome", got, _expected_json(expect))
        if devices is not None and expect["device_hints"] is not None:
            differences += _check_device_hints(*devices, expect["device_hints"])
        if expect.get("hints") is not None and other_weights is not None:
            differences += _check_hints(
                node, _by_records(node, holdings), request, expect, other_weights
            )
        if not differences:
            return []
    return [f"{differences} ({outcome})"] if isinstance(outcome, Refusal) else differences


def _is_panic(expect: Json) -> bool:
    return "panic" in expect or any(
        isinstance(value, dict) and value.get("panic") for value in expect.values()
    )


def _is_placed(expect: Json) -> bool:
    steps = (expect["prefilter"], expect["filter"], expect["reserve"])
    if expect["prefilter"]["code"] == "Skip":
        return True
    return all(step is not None and step["code"] == "Success" for step in steps)


def _expected_json(expect: Json) -> Json | None:
    if not _is_placed(expect):
        return None
    fields = ("allocated", "cpus", "mask", *(("devices",) if "devices" in expect else ()))
    return {key: expect[key] for key in fields}


def _devices_of(case: Json) -> tuple[FreeDevices, DeviceRequest] | None:
    if "devices" not in case:
        return None
    strategy = case["device_scoring_strategy"]
    free = free_devices(case["devices"], case["held_devices"], strategy)
    return free, request_of_devices(case["pod_devices"])


def _check_device_hints(free: FreeDevices, request: DeviceRequest, expect: Json) -> list[str]:
    """Compare the hints with and without exclusivity (quirk `pcie-exclusive-does-nothing`)."""
    hints = {
        kind: msgspec.structs.replace(hint, exclusive="") for kind, hint in request.hints.items()
    }
    variants: list[Json | str] = []
    for wanted in (request, msgspec.structs.replace(request, hints=hints)):
        try:
            variants.append(device_hints_json(device_hints_of(free, wanted)))
        except DevicesError as error:
            variants.append(str(error))
    return [] if expect in variants else _differs("device hints", variants[0], expect)


def _outcome_json(
    outcome: Allocation | Refusal, devices: tuple[FreeDevices, DeviceRequest] | None
) -> Json | None:
    if isinstance(outcome, Refusal):
        return None
    announced = outcome.holding.zones if outcome.mask is not None else ()
    holding = msgspec.structs.replace(outcome.holding, zones=announced)
    got = {**holding_json(holding), "mask": mask_json(outcome.mask)}
    if devices is not None:
        got["devices"] = holdings_json(outcome.devices)
    return got


def _check_hints(
    node: OwnedNode, free: Free, request: OwnedRequest, expect: Json, other_weights: Json
) -> list[str]:
    """Compare the hints under the corrected rules and under Koordinator's: its order of zones and
    its weights (quirk `numa-weights-ignored`). It hints before it looks at conflicts of the bind
    policy, which refuse a pod here before any hint.
    """
    policy = combined_policy(node.policy, request.policy)
    if policy in (None, NONE) or isinstance(trial_of(node, free, request), Refusal):
        return []
    nodes = (node, msgspec.structs.replace(node, weights=tuple(other_weights.items())))
    variants = [
        _hints_json(one, free, request, policy, order) for one in nodes for order in _ORDERS
    ]
    return [] if expect["hints"] in variants else _differs("hints", variants[0], expect["hints"])


def _by_position(mask: tuple[int, ...], free: Mapping[int, int]) -> list[int]:
    """Return the zones in Koordinator's order, which compares the free amounts of the zones whose
    ids are the positions (quirk `split-sorts-by-position`).
    """
    order = list(mask)
    for last in range(1, len(order)):
        index = last
        while index and free.get(index, 0) < free.get(index - 1, 0):
            order[index], order[index - 1] = order[index - 1], order[index]
            index -= 1
    return order


_ORDERS = (roomiest_last, _by_position)


def _hints_json(
    node: OwnedNode,
    free: Free,
    request: OwnedRequest,
    policy: Policy,
    order: Callable[..., list[int]],
) -> Json:
    trial = trial_of(node, free, request)
    assert isinstance(trial, Trial)
    with patch("shared.owned.allocate.roomiest_last", order):
        hints = hints_of(trial, offered(trial, enumerate_masks(free.zones)), policy)
    return {
        resource: [
            {"mask": mask_json(hint.mask), "preferred": hint.preferred, "score": hint.score}
            for hint in listed
        ]
        for resource, listed in hints.items()
    }


def _check_trials(
    node: OwnedNode, free: Free, request: OwnedRequest, trials: Iterable[Json]
) -> list[str]:
    trial = trial_of(node, free, request)
    if not isinstance(trial, Trial):
        return []
    wrong = []
    for doc in (doc for doc in trials if doc["status"]["code"] != "Skip"):
        allocation = allocate(trial, mask_of(doc["mask"]))
        got = holding_json(allocation) if isinstance(allocation, Holding) else None
        wanted = [_trial_json(doc), *([_trial_json(doc["fixed"])] if "fixed" in doc else ())]
        if got not in wanted:
            wrong.append(f"trial {doc['mask']}: ours {got}, recorded {wanted}")
    return wrong


def _trial_json(doc: Json) -> Json | None:
    if doc["status"]["code"] != "Success":
        return None
    return {"allocated": doc["zones"], "cpus": doc["cpus"]}


def _amounts_json(free: Free) -> list[Json]:
    return [{"zone": zone, "resources": dict(amounts)} for zone, amounts in free.amounts.items()]


def _differs(what: str, ours: object, recorded: object) -> list[str]:
    return [] if ours == recorded else [f"{what}: ours {ours}, recorded {recorded}"]
