"""Notices that a kubelet wrote its state: the modification time of its folder, looked at for all nodes in one loop.

The kubelet writes checkpoints by rename, which touches the folder; a look costs microseconds, needs no privilege and
works on every file system. Must not know what changed.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping


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


def _modified_ns(folder: str) -> int:
    try:
        return os.stat(folder).st_mtime_ns
    except OSError:
        return 0
