"""The kubelet versions for which the model is confirmed: their recorded decisions are replayed
against it (tests/vectors).
"""

from __future__ import annotations

# Minor versions.
PROVEN = ("1.36",)


def is_proven(version: str) -> bool:
    """Return whether a version such as `v1.36.2` (status.nodeInfo.kubeletVersion) is confirmed. An
    empty one is unknown.
    """
    return any(version.removeprefix("v").startswith(f"{proven}.") for proven in PROVEN)
