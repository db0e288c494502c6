"""Under which name and key the log keeps snapshots of the scheduler's state.

The scheduler saves them; replay starts from the nearest one. This module does not know deciding.
"""

from __future__ import annotations

from services.scheduler.state import state
from shared.eventlog.snapshots import fingerprint
from shared.hints import registry

PROJECTION = "scheduler"


def snapshot_key() -> str:
    """Return the key: a fingerprint of the fold's code and of the registered hint providers."""
    return fingerprint(state, PROJECTION, registry.PROVIDERS)
