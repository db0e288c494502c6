"""What a kubelet notes by its node's clock: when it started a pod, and when the pod's containers
had finished.

The API cuts times off to whole seconds (RFC 3339). What is not told, or is no time, is 0: unknown.
Must not know the ledger, nor any clock of ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

Object = dict[str, Any]

STATUSES = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")


def started_s(status: Object) -> int:
    """When the kubelet first told of the pod, which it does once it is admitted (kubelet 1.36), in
    seconds since the epoch.
    """
    return _seconds(status.get("startTime"))


def finished_s(status: Object) -> int:
    """When the last of those containers finished that are known to have, in seconds since the
    epoch. Until then the pod was active, and held what it had (kubelet 1.36)."""
    return max(map(_seconds, _ends(status)), default=0)


def _ends(status: Object) -> Iterator[object]:
    for name in STATUSES:
        listed = status.get(name)
        for each in listed if isinstance(listed, list) else ():
            state = each.get("state") if isinstance(each, dict) else None
            ended = state.get("terminated") if isinstance(state, dict) else None
            if isinstance(ended, dict):
                yield ended.get("finishedAt")


def _seconds(told: object) -> int:
    try:
        at = datetime.fromisoformat(told) if isinstance(told, str) else None
        return max(0, int(at.timestamp())) if at is not None and at.tzinfo is not None else 0
    except (ValueError, OverflowError):
        return 0
