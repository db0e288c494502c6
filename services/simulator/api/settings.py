"""Knobs of the simulated API server, with defaults that suit a laptop. Must not know objects or
HTTP.
"""

from __future__ import annotations

import msgspec


class ApiSettings(msgspec.Struct, frozen=True):
    """Bounds and intervals.

    `history_limit` changes per resource are kept for watches (older versions get 410).
    `events_kept` Kubernetes Events are kept at most; the oldest are removed, as after their hour on
    a real cluster. `taint_new_nodes` gives each new Node the not-ready taint as the real admission
    plugin does; a controller must then remove it.
    """

    history_limit: int = 8192
    events_kept: int = 10_000
    watch_backlog_lines: int = 20_000
    watch_timeout_s: float = 2700.0
    bookmark_interval_s: float = 30.0
    future_version_wait_s: float = 3.0
    max_body_bytes: int = 3_145_728
    taint_new_nodes: bool = True
    advertised_address: str = "127.0.0.1"
