"""Notices what happens elsewhere: that a kubelet wrote its state, and that the bus came back.

The kubelet writes checkpoints by rename, which changes its folder's modification time; a look at that costs microseconds,
needs no privilege and works on every file system. Must not know what changed.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping

from shared.bus.port import Bus

BUS_INTERVAL_S = 1.0


async def watch_folders(folders: Mapping[str, str], interval_s: float, changed: Callable[[str], None]) -> None:
    """Call `changed(node)` when a node's folder was modified since the last look. Ends by cancellation."""
    seen = {node: _modified_ns(folder) for node, folder in folders.items()}
    while True:
        await asyncio.sleep(interval_s)
        for node, folder in folders.items():
            modified = _modified_ns(folder)
            if modified != seen[node]:
                seen[node] = modified
                changed(node)


async def watch_bus(bus: Bus, returned: Callable[[], None]) -> None:
    """Call `returned()` whenever the bus is there again after having been away. Ends by cancellation."""
    there = True
    while True:
        await asyncio.sleep(BUS_INTERVAL_S)
        before, there = there, await bus.connected()
        if there and not before:
            returned()


def _modified_ns(folder: str) -> int:
    try:
        return os.stat(folder).st_mtime_ns
    except OSError:
        return 0
