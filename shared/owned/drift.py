"""What containers have by their enforcer, and GPUs by their kubelet, compared with what was
reserved for their pod.

Resources that the enforcer does not list are unknown, which is no difference.
"""

from __future__ import annotations

from collections.abc import Iterable

from shared.domain.idlist import parse_ids
from shared.domain.report import Placement, ZonedAmount
from shared.domain.resources import CPU, is_memory
from shared.domain.zone_allocation import ZoneAllocation
from shared.kubelet.cpuset import parse_cpus, union
from shared.owned.device_request import WHOLE_GPUS
from shared.owned.devices import GPU


def drift_of(
    allocation: ZoneAllocation,
    placements: Iterable[Placement],
    card_ids: frozenset[str] = frozenset(),
) -> str:
    """Return the first difference as `container main: CPUs 6-9, reserved are 2-5`, "" without one.

    A pod that shares CPUs may have any CPUs of its zones. Memory counts only if it is bound, and a
    GPU only if its id is one of `card_ids`, those of the node's Device object.
    """
    reserved_ids = {card.id for card in allocation.devices if card.type == GPU}
    for placement in placements:
        cpus = [held for held in placement.held if held.resource == CPU]
        memory = [held for held in placement.held if is_memory(held.resource)]
        about = f"container {placement.container}" if placement.container else "the pod"
        if others := (_ids_of_gpus(placement.held) & card_ids) - reserved_ids:
            return f"{about}: GPUs {_text(others)}, reserved are {_text(reserved_ids)}"
        ids = ",".join(held.ids for held in cpus)
        reserved = parse_cpus(allocation.cpus)
        if reserved and cpus and union(parse_cpus(held.ids) for held in cpus) != reserved:
            return f"{about}: CPUs {ids}, reserved are {allocation.cpus}"
        beyond = _zones(cpus) - _reserved(allocation, memory=False)
        if beyond and not reserved and allocation.zones:
            return f"{about}: CPUs {ids}, of zones that were not reserved ({_text(beyond)})"
        beyond = _zones(memory) - _reserved(allocation, memory=True)
        if beyond and allocation.memory_policy == "bind":
            return f"{about}: memory of zones that were not reserved ({_text(beyond)})"
    return ""


def _ids_of_gpus(held: Iterable[ZonedAmount]) -> set[str]:
    """Return the ids of GPUs that a device plugin gave."""
    texts = (amount.ids for amount in held if amount.resource in WHOLE_GPUS)
    return {device_id for text in texts for device_id in parse_ids(text)}


def _zones(amounts: Iterable[ZonedAmount]) -> set[int]:
    return {zone for held in amounts for zone in held.zones}


def _reserved(allocation: ZoneAllocation, memory: bool) -> set[int]:
    """Return the zones in which the pod has CPUs, or memory."""
    return {
        zone
        for zone, amounts in allocation.zones.items()
        if any(is_memory(name) if memory else name == CPU for name in amounts)
    }


def _text(ids: Iterable[int] | Iterable[str]) -> str:
    return ", ".join(map(str, sorted(ids)))
