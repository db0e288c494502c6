"""Reads of the node's files: the /sys tree, the boot id, the kubelet's configuration and CPU
checkpoint, the boot clock.

The shell around `sysfs` and `kubelet_config`: small bounded reads, absence as None. Decides
nothing.
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
CHECKPOINTS = (
    "cpu_manager_state",
    "memory_manager_state",
    "device-plugins/kubelet_internal_checkpoint",
)
"""The kubelet's checkpoints in its folder: CPUs, memory, devices."""


class FolderTree:
    """A /sys tree on disk; `root` is what stands for `/sys`."""

    def __init__(self, root: Path) -> None:
        self._root = str(root)

    def text(self, path: str) -> str | None:
        """The file's text; None when it is absent or unreadable as a file."""
        found = read_bounded(f"{self._root}/{path}")
        return None if found is None else found.decode("ascii", "replace")

    def target(self, path: str) -> str:
        """The name of what a link leads to in the end; the path's own last name where it is no
        link.
        """
        return os.path.basename(os.path.realpath(f"{self._root}/{path}"))

    def names(self, path: str) -> list[str]:
        """The folder's entries, sorted; empty when absent."""
        try:
            return sorted(os.listdir(f"{self._root}/{path}"))
        except OSError:
            return []


def read_bounded(path: Path | str, limit_bytes: int = MAX_FILE_BYTES) -> bytes | None:
    """The file's first `limit_bytes` bytes, or None when it cannot be read.

    Read without buffers: an exporter of many nodes spends most of its time here.
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
    """The configured file, else the tree's own `boot_id` (simulated nodes), else the kernel's.
    Raises ValueError.
    """
    candidates = [configured] if configured else [sysfs_root / BOOT_ID_FILE, HOST_BOOT_ID]
    for path in candidates:
        # The kernel refuses reads of 4 MiB and more from /proc/sys with ENOMEM
        # (proc_sys_call_handler).
        text = (read_bounded(path, BOOT_ID_MAX_BYTES) or b"").decode("ascii", "replace").strip()
        if text:
            return text
    raise ValueError(
        f"no boot id in {' or '.join(map(str, candidates))}; name a file with --boot-id-file"
    )


def boot_time_ms() -> int:
    """Milliseconds since boot, suspended time included; monotonic within one boot id."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000
