"""The annotation that bounds how long a pod waits: `topolog.io/hold-after: 10m`."""

from __future__ import annotations

from shared.domain.durations import nanoseconds
from shared.domain.pod import Pod

HOLD_AFTER = "topolog.io/hold-after"
US = 1_000


def hold_after_us(pod: Pod) -> int | None:
    """Return the pod's own bound in microseconds, 0 for no bound; None if it names none that can be
    read.
    """
    text = pod.annotations.get(HOLD_AFTER)
    duration_ns = nanoseconds(text) if text is not None else None
    return None if duration_ns is None else duration_ns // US
