"""A small file system for a server, which can be made full: a tmpfs in mounts of this program's
own; nothing stays behind.

Needs root, and `unshare` and `mount` of util-linux. Must not know what the server keeps there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

_MARK = "TOPOLOG_CHAOS_MOUNTS"
_BYTES = 8 << 30
TRIES = 50


def own_mounts() -> bool:
    """Run this program again in its own mount namespace, unless it is in one; this does not return.
    Return False if the system does not permit it.
    """
    if _MARK in os.environ:
        return True
    unshare = shutil.which("unshare")
    if (
        os.geteuid() != 0
        or unshare is None
        or subprocess.run([unshare, "--mount", "true"], check=False).returncode != 0
    ):
        return False
    again = [unshare, "--mount", sys.executable, "-m", "tests.chaos", *sys.argv[1:]]
    return os.execve(unshare, again, os.environ | {_MARK: "1"})


class MountError(Exception):
    """The system refused a mount. The message has the reason."""


class Disk:
    """The file system of `folder`. It takes memory only for the written bytes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        _mount("-t", "tmpfs", "-o", f"size={_BYTES},mode=0711", "tmpfs", str(folder))

    def fill(self) -> int:
        """Fill the disk and return the used bytes. Bytes written meanwhile make the size too small,
        so it is checked again.
        """
        for _ in range(TRIES):
            used_bytes = shutil.disk_usage(self.folder).used
            try:
                self._resize(used_bytes)
            except MountError:
                continue
            return used_bytes
        raise RuntimeError(f"{self.folder} grew {TRIES} times while it was being filled")

    def free(self) -> None:
        """Free the space again."""
        self._resize(_BYTES)

    def _resize(self, size_bytes: int) -> None:
        _mount("-o", f"remount,size={size_bytes}", str(self.folder))


def _mount(*arguments: str) -> None:
    done = subprocess.run(["mount", *arguments], check=False, capture_output=True, text=True)
    if done.returncode:
        raise MountError(f"mount {' '.join(arguments)}: {done.stderr.strip()}")
