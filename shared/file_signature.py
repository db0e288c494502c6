"""A value that changes when a file is replaced or written, so that its readers read it again."""

from __future__ import annotations

import os

Signature = tuple[int, ...]

ABSENT: Signature = ()


def signature(path: str) -> Signature:
    """Return device, inode, size and time of writing, or ABSENT. A link counts as its target,
    because mounted secrets are links."""
    try:
        status = os.stat(path)
    except OSError:
        return ABSENT
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
