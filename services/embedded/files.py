"""Write a file atomically, with its mode from the first byte, by renaming a draft."""

from __future__ import annotations

import os
from pathlib import Path


def write(path: Path, data: bytes, mode: int) -> None:
    """Write `data` to `path`, replacing a file that exists. `mode` is as in `os.open`. Raises
    OSError.
    """
    draft = path.with_name(path.name + ".new")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as opened:
        opened.write(data)
    draft.replace(path)
