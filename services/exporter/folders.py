"""Bounded reads of the node's files: the /sys tree, the boot id, files of the kubelet, the clock.

Absence is None. Decides nothing.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

MAX_FILE_BYTES = 8 * 1024 * 1024
READ_BYTES = 64 * 1024
HOST_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
BOOT_ID_FILE = "boot_id"
BOOT_ID_MAX_BYTES = 4096
CONFIG_FILE = "config.yaml"
# The kubelet's checkpoints in its folder: CPUs, memory, devices.
CHECKPOINTS = (
    "cpu_manager_state",
    "memory_manager_state",
    "device-plugins/kubelet_internal_checkpoint",
)


class FolderTree:
    """A /sys tree on disk; `root` is the folder that takes the place of `/sys`.

    `/proc` is expected in the same parent folder: for /sys and /host-sys that is the host's own,
    and a copied tree may have a copy.
    """

    def __init__(self, root: Path) -> None:
        self._root = str(root)
        self._parent = str(root.absolute().parent).rstrip("/")

    def text(self, path: str) -> str | None:
        """Return the file's text, or None if it cannot be read."""
        base = self._parent if path.startswith("/") else f"{self._root}/"
        data = read_bounded(f"{base}{path}")
        return None if data is None else data.decode("ascii", "replace")

    def names(self, path: str) -> list[str]:
        """Return the folder's entries, sorted; empty if it is absent."""
        try:
            return sorted(os.listdir(f"{self._root}/{path}"))
        except OSError:
            return []


def read_bounded(path: Path | str, limit_bytes: int = MAX_FILE_BYTES) -> bytes | None:
    """Return the file's first `limit_bytes` bytes, or None if it cannot be read.

    Reads without buffers: an exporter of many nodes spends most of its time here.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        parts = [b""]
        while limit_bytes > 0 and (part := os.read(descriptor, min(limit_bytes, READ_BYTES))):
            parts.append(part)
            limit_bytes -= len(part)
        return b"".join(parts)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def boot_id(sysfs_root: Path, configured: Path | None) -> str:
    """Return the boot id from the configured file, the tree's `boot_id` (simulated nodes) or the
    kernel. Raises ValueError.
    """
    candidates = [configured] if configured else [sysfs_root / BOOT_ID_FILE, HOST_BOOT_ID]
    for path in candidates:
        # The kernel rejects reads of 4 MiB and more from /proc/sys with ENOMEM
        # (proc_sys_call_handler).
        text = (read_bounded(path, BOOT_ID_MAX_BYTES) or b"").decode("ascii", "replace").strip()
        if text:
            return text
    raise ValueError(
        f"no boot id in {' or '.join(map(str, candidates))}; name a file with --boot-id-file"
    )


def boot_time_ms() -> int:
    """Return milliseconds since boot, suspended time included; monotonic within one boot id."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000
