"""The two streams as numbers: how much the bus may keep, and for how long. Everything on it can be
made again.
"""

from __future__ import annotations

import msgspec


class StreamLimits(msgspec.Struct, frozen=True):
    """`duplicate_window_s` is how long a repeated message id is recognised, `replicas` on how many
    servers of a cluster a stream lies."""

    report_bytes: int = 128 << 20
    report_age_s: float = 24 * 3600.0
    event_bytes: int = 256 << 20
    event_age_s: float = 24 * 3600.0
    message_bytes: int = 1 << 20
    duplicate_window_s: float = 120.0
    replicas: int = 1
