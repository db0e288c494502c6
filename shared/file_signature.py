"""What changes when a file is replaced or written, for whoever reads it again then. Must not know
what is in files.
"""

from __future__ import annotations

import os

Signature = tuple[int, ...]

ABSENT: Signature = ()


def signature(path: str) -> Signature:
    """Device, inode, size and time of writing; a link (a mounted secret) counts as what it leads
    to. ABSENT of no file.
    """
    try:
        found = os.stat(path)
    except OSError:
        return ABSENT
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
