"""Vectors of Koordinator's choice of CPU ids (cpu_picking)."""

from __future__ import annotations

from typing import Any

import msgspec

from shared.kubelet.cpuset import format_cpus, parse_cpus
from shared.owned.cpu_choice import CpuRequest, choose_cpus
from shared.owned.free import free_of
from shared.owned.values import Holding, OwnedNode
from tests.vectors.koordinator import answers, differences_named, with_machines

KIND = "cpu_picking"

Json = dict[str, Any]


def recognises(doc: Json) -> bool:
    return doc.get("kind") == KIND


cases = with_machines
deliberate = differences_named


def check(case: Json) -> list[str]:
    machine = case["nesting"]
    node = OwnedNode(
        "node",
        cpus=machine,
        reserved_cpus=parse_cpus(case["reserved_cpus"]),
        sharers=case["max_ref_count"],
    )
    first = parse_cpus(case["preferred_cpus"])
    free = free_of(node, _handed_back(case["held"], first))
    available = free.cpus
    if case["within_zones"] is not None:
        available &= sum(machine.in_zone.get(zone, 0) for zone in case["within_zones"])
    request = CpuRequest(case["need"], case["bind"], case["exclusive"], case["strategy"])
    chosen = choose_cpus(machine, available, request, free.held, first)
    got = {
        "available": format_cpus(free.cpus),
        "cpus": None if chosen is None else format_cpus(chosen),
    }
    wanted = [{key: answer[key] for key in got} for answer in answers(case)]
    return [] if got in wanted else [f"ours {got}, recorded {wanted}"]


def _handed_back(docs: list[Json], cpus: int) -> list[Holding]:
    """Return the holdings after one pod of each of these CPUs has handed it back: the first, whose
    exclusive policy no longer counts.
    """
    holdings = []
    for doc in docs:
        holding = Holding(parse_cpus(doc["cpus"]), doc["exclusive"])
        holdings.append(msgspec.structs.replace(holding, cpus=holding.cpus & ~cpus))
        cpus &= ~holding.cpus
    return holdings
