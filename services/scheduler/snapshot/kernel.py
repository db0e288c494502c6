"""The compiled kernel (`compiled/`), if this machine has built it (`scripts/build_kernel.py`).

Without it, callers use the plain form, which decides the same and more slowly. A module of another
version of Topolog counts as absent.
"""

from __future__ import annotations

from typing import Any

# Raised with every change of a signature, as in `compiled/module.c`.
INTERFACE = 9


def _loaded() -> Any:
    try:
        from services.scheduler.snapshot import _kernel  # type: ignore[attr-defined, unused-ignore]
    except ImportError:
        return None
    compiled: Any = _kernel
    return compiled if compiled.INTERFACE == INTERFACE else None


COMPILED: Any = _loaded()


def description() -> str:
    """Return which form decides, for people."""
    return "compiled kernel" if COMPILED is not None else "no compiled kernel, plain Python"
