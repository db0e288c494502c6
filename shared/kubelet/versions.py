"""Which kubelets the model is proven for: their recorded decisions are replayed against it
(tests/vectors).
"""

from __future__ import annotations

PROVEN = ("1.36",)
"""Minor versions."""


def is_proven(version: str) -> bool:
    """`v1.36.2` of status.nodeInfo.kubeletVersion; of an empty one (facts of schema 1) nobody
    knows.
    """
    return any(version.removeprefix("v").startswith(f"{proven}.") for proven in PROVEN)
