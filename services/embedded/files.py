"""A file is there whole or not at all, with its rights from its first byte on: written as a draft,
then put in its place.
"""

from __future__ import annotations

import os
from pathlib import Path


def write(path: Path, data: bytes, mode: int) -> None:
    """Write `data` to `path`, in place of what may be there. `mode` as `os.open` takes it. Raises
    OSError.
    """
    draft = path.with_name(path.name + ".new")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as opened:
        opened.write(data)
    draft.replace(path)
