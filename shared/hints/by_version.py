"""A node's states under each rule set that its kubelet's version may have.

Two rules are part of a manager's state: over which zones hints of devices run, and whether the
Memory Manager checks an allocation against its groups of zones. If several versions are possible,
each state occurs under every combination. Must not know the ledger.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TypeVar

from shared.hints.admission import NodeState
from shared.hints.devices import DeviceCountManager
from shared.hints.memory_manager import MemoryBlockManager
from shared.hints.provider import ResourceManager

Manager = TypeVar("Manager", bound=ResourceManager)


def under_rules(
    managers: Sequence[ResourceManager],
    bases: Collection[NodeState],
    zones: Collection[int],
    hint_zones: Collection[str],
    group_checks: Collection[bool],
) -> tuple[NodeState, ...]:
    """Return every base with hints of devices over these zones (`all`, `bearing`), and with and
    without a check of groups of zones as far as that is possible."""
    states = list(bases) if "bearing" in hint_zones else []
    row, devices = _of_type(managers, DeviceCountManager)
    if "all" in hint_zones:
        for base in bases:
            state = devices.over(base[row], zones) if devices is not None else None
            states.append(base if state is None else (*base[:row], state, *base[row + 1 :]))
    checked = states if True in group_checks else []
    row, memory = _of_type(managers, MemoryBlockManager)
    if memory is not None and False in group_checks:
        unchecked = [
            (*state[:row], state[row]._replace(unchecked=True), *state[row + 1 :])
            for state in states
        ]
        checked = [*checked, *unchecked]
    return tuple(dict.fromkeys(checked or states))


def _of_type(
    managers: Sequence[ResourceManager], wanted: type[Manager]
) -> tuple[int, Manager | None]:
    for row, manager in enumerate(managers):
        if isinstance(manager, wanted):
            return row, manager
    return -1, None
